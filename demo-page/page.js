// Made by `make demo-page` from demo-page/source/ and stream_app/api/dashboard/. Change those.
/*! https://github.com/leeoniya/uPlot (v1.6.32) */
var uPlot=function(){"use strict";const l="u-off",e="u-label",t="width",n="height",i="top",o="bottom",s="left",r="right",u="#000",a=u+"0",f="mousemove",c="mousedown",h="mouseup",d="mouseenter",p="mouseleave",m="dblclick",g="change",x="dppxchange",w="--",_="undefined"!=typeof window,b=_?document:null,v=_?window:null,k=_?navigator:null;let y,M;function S(l,e){if(null!=e){let t=l.classList;!t.contains(e)&&t.add(e)}}function T(l,e){let t=l.classList;t.contains(e)&&t.remove(e)}function E(l,e,t){l.style[e]=t+"px"}function z(l,e,t,n){let i=b.createElement(l);return null!=e&&S(i,e),null!=t&&t.insertBefore(i,n),i}function D(l,e){return z("div",l,e)}const P=new WeakMap;function A(e,t,n,i,o){let s="translate("+t+"px,"+n+"px)";s!=P.get(e)&&(e.style.transform=s,P.set(e,s),0>t||0>n||t>i||n>o?S(e,l):T(e,l))}const W=new WeakMap;function Y(l,e,t){let n=e+t;n!=W.get(l)&&(W.set(l,n),l.style.background=e,l.style.borderColor=t)}const C=new WeakMap;function H(l,e,t,n){let i=e+""+t;i!=C.get(l)&&(C.set(l,i),l.style.height=t+"px",l.style.width=e+"px",l.style.marginLeft=n?-e/2+"px":0,l.style.marginTop=n?-t/2+"px":0)}const F={passive:!0},R={...F,capture:!0};function G(l,e,t,n){e.addEventListener(l,t,n?R:F)}function I(l,e,t){e.removeEventListener(l,t,F)}function L(l,e,t,n){let i;t=t||0;let o=2147483647>=(n=n||e.length-1);for(;n-t>1;)i=o?t+n>>1:sl((t+n)/2),l>e[i]?t=i:n=i;return l-e[t]>e[n]-l?n:t}function O(l){return(e,t,n)=>{let i=-1,o=-1;for(let o=t;n>=o;o++)if(l(e[o])){i=o;break}for(let i=n;i>=t;i--)if(l(e[i])){o=i;break}return[i,o]}}_&&function l(){let e=devicePixelRatio;y!=e&&(y=e,M&&I(g,M,l),M=matchMedia(`(min-resolution: ${y-.001}dppx) and (max-resolution: ${y+.001}dppx)`),G(g,M,l),v.dispatchEvent(new CustomEvent(x)))}();const N=l=>null!=l,j=l=>null!=l&&l>0,U=O(N),V=O(j);function B(l,e,t,n){let i=hl(l),o=hl(e);l==e&&(-1==i?(l*=t,e/=t):(l/=t,e*=t));let s=10==t?dl:pl,r=1==o?ul:sl,u=(1==i?sl:ul)(s(ol(l))),a=r(s(ol(e))),f=cl(t,u),c=cl(t,a);return 10==t&&(0>u&&(f=Al(f,-u)),0>a&&(c=Al(c,-a))),n||2==t?(l=f*i,e=c*o):(l=Pl(l,f),e=Dl(e,c)),[l,e]}function $(l,e,t,n){let i=B(l,e,t,n);return 0==l&&(i[0]=0),0==e&&(i[1]=0),i}const J=.1,q={mode:3,pad:J},K={pad:0,soft:null,mode:0},X={min:K,max:K};function Z(l,e,t,n){return Ol(t)?ll(l,e,t):(K.pad=t,K.soft=n?0:null,K.mode=n?3:0,ll(l,e,X))}function Q(l,e){return null==l?e:l}function ll(l,e,t){let n=t.min,i=t.max,o=Q(n.pad,0),s=Q(i.pad,0),r=Q(n.hard,-gl),u=Q(i.hard,gl),a=Q(n.soft,gl),f=Q(i.soft,-gl),c=Q(n.mode,0),h=Q(i.mode,0),d=e-l,p=dl(d),m=fl(ol(l),ol(e)),g=dl(m),x=ol(g-p);(1e-24>d||x>10)&&(d=0,0!=l&&0!=e||(d=1e-24,2==c&&a!=gl&&(o=0),2==h&&f!=-gl&&(s=0)));let w=d||m||1e3,_=dl(w),b=cl(10,sl(_)),v=Al(Pl(l-w*(0==d?0==l?.1:1:o),b/10),24),k=a>l||1!=c&&(3!=c||v>a)&&(2!=c||a>v)?gl:a,y=fl(r,k>v&&l>=k?k:al(k,v)),M=Al(Dl(e+w*(0==d?0==e?.1:1:s),b/10),24),S=e>f||1!=h&&(3!=h||f>M)&&(2!=h||M>f)?-gl:f,T=al(u,M>S&&S>=e?S:fl(S,M));return y==T&&0==y&&(T=100),[y,T]}const el=new Intl.NumberFormat(_?k.language:"en-US"),tl=l=>el.format(l),nl=Math,il=nl.PI,ol=nl.abs,sl=nl.floor,rl=nl.round,ul=nl.ceil,al=nl.min,fl=nl.max,cl=nl.pow,hl=nl.sign,dl=nl.log10,pl=nl.log2,ml=(l,e=1)=>nl.asinh(l/e),gl=1/0;function xl(l){return 1+(0|dl((l^l>>31)-(l>>31)))}function wl(l,e,t){return al(fl(l,e),t)}function _l(l){return"function"==typeof l}function bl(l){return _l(l)?l:()=>l}const vl=l=>l,kl=(l,e)=>e,yl=()=>null,Ml=()=>!0,Sl=(l,e)=>l==e,Tl=/\.\d*?(?=9{6,}|0{6,})/gm,El=l=>{if(Il(l)||Wl.has(l))return l;const e=""+l,t=e.match(Tl);if(null==t)return l;let n=t[0].length-1;if(-1!=e.indexOf("e-")){let[l,t]=e.split("e");return+`${El(l)}e${t}`}return Al(l,n)};function zl(l,e){return El(Al(El(l/e))*e)}function Dl(l,e){return El(ul(El(l/e))*e)}function Pl(l,e){return El(sl(El(l/e))*e)}function Al(l,e=0){if(Il(l))return l;let t=10**e;return rl(l*t*(1+Number.EPSILON))/t}const Wl=new Map;function Yl(l){return((""+l).split(".")[1]||"").length}function Cl(l,e,t,n){let i=[],o=n.map(Yl);for(let s=e;t>s;s++){let e=ol(s),t=Al(cl(l,s),e);for(let r=0;n.length>r;r++){let u=10==l?+`${n[r]}e${s}`:n[r]*t,a=(0>s?e:0)+(o[r]>s?o[r]:0),f=10==l?u:Al(u,a);i.push(f),Wl.set(f,a)}}return i}const Hl={},Fl=[],Rl=[null,null],Gl=Array.isArray,Il=Number.isInteger;function Ll(l){return"string"==typeof l}function Ol(l){let e=!1;if(null!=l){let t=l.constructor;e=null==t||t==Object}return e}function Nl(l){return null!=l&&"object"==typeof l}const jl=Object.getPrototypeOf(Uint8Array),Ul="__proto__";function Vl(l,e=Ol){let t;if(Gl(l)){let n=l.find((l=>null!=l));if(Gl(n)||e(n)){t=Array(l.length);for(let n=0;l.length>n;n++)t[n]=Vl(l[n],e)}else t=l.slice()}else if(l instanceof jl)t=l.slice();else if(e(l)){t={};for(let n in l)n!=Ul&&(t[n]=Vl(l[n],e))}else t=l;return t}function Bl(l){let e=arguments;for(let t=1;e.length>t;t++){let n=e[t];for(let e in n)e!=Ul&&(Ol(l[e])?Bl(l[e],Vl(n[e])):l[e]=Vl(n[e]))}return l}function $l(l,e,t){for(let n,i=0,o=-1;e.length>i;i++){let s=e[i];if(s>o){for(n=s-1;n>=0&&null==l[n];)l[n--]=null;for(n=s+1;t>n&&null==l[n];)l[o=n++]=null}}}const Jl="undefined"==typeof queueMicrotask?l=>Promise.resolve().then(l):queueMicrotask,ql=["January","February","March","April","May","June","July","August","September","October","November","December"],Kl=["Sunday","Monday","Tuesday","Wednesday","Thursday","Friday","Saturday"];function Xl(l){return l.slice(0,3)}const Zl=Kl.map(Xl),Ql=ql.map(Xl),le={MMMM:ql,MMM:Ql,WWWW:Kl,WWW:Zl};function ee(l){return(10>l?"0":"")+l}const te={YYYY:l=>l.getFullYear(),YY:l=>(l.getFullYear()+"").slice(2),MMMM:(l,e)=>e.MMMM[l.getMonth()],MMM:(l,e)=>e.MMM[l.getMonth()],MM:l=>ee(l.getMonth()+1),M:l=>l.getMonth()+1,DD:l=>ee(l.getDate()),D:l=>l.getDate(),WWWW:(l,e)=>e.WWWW[l.getDay()],WWW:(l,e)=>e.WWW[l.getDay()],HH:l=>ee(l.getHours()),H:l=>l.getHours(),h:l=>{let e=l.getHours();return 0==e?12:e>12?e-12:e},AA:l=>12>l.getHours()?"AM":"PM",aa:l=>12>l.getHours()?"am":"pm",a:l=>12>l.getHours()?"a":"p",mm:l=>ee(l.getMinutes()),m:l=>l.getMinutes(),ss:l=>ee(l.getSeconds()),s:l=>l.getSeconds(),fff:l=>function(l){return(10>l?"00":100>l?"0":"")+l}(l.getMilliseconds())};function ne(l,e){e=e||le;let t,n=[],i=/\{([a-z]+)\}|[^{]+/gi;for(;t=i.exec(l);)n.push("{"==t[0][0]?te[t[1]]:t[0]);return l=>{let t="";for(let i=0;n.length>i;i++)t+="string"==typeof n[i]?n[i]:n[i](l,e);return t}}const ie=(new Intl.DateTimeFormat).resolvedOptions().timeZone,oe=l=>l%1==0,se=[1,2,2.5,5],re=Cl(10,-32,0,se),ue=Cl(10,0,32,se),ae=ue.filter(oe),fe=re.concat(ue),ce="{YYYY}",he="\n"+ce,de="{M}/{D}",pe="\n"+de,me=pe+"/{YY}",ge="{aa}",xe="{h}:{mm}"+ge,we="\n"+xe,_e=":{ss}",be=null;function ve(l){let e=1e3*l,t=60*e,n=60*t,i=24*n,o=30*i,s=365*i;return[(1==l?Cl(10,0,3,se).filter(oe):Cl(10,-3,0,se)).concat([e,5*e,10*e,15*e,30*e,t,5*t,10*t,15*t,30*t,n,2*n,3*n,4*n,6*n,8*n,12*n,i,2*i,3*i,4*i,5*i,6*i,7*i,8*i,9*i,10*i,15*i,o,2*o,3*o,4*o,6*o,s,2*s,5*s,10*s,25*s,50*s,100*s]),[[s,ce,be,be,be,be,be,be,1],[28*i,"{MMM}",he,be,be,be,be,be,1],[i,de,he,be,be,be,be,be,1],[n,"{h}"+ge,me,be,pe,be,be,be,1],[t,xe,me,be,pe,be,be,be,1],[e,_e,me+" "+xe,be,pe+" "+xe,be,we,be,1],[l,_e+".{fff}",me+" "+xe,be,pe+" "+xe,be,we,be,1]],function(e){return(r,u,a,f,c,h)=>{let d=[],p=c>=s,m=c>=o&&s>c,g=e(a),x=Al(g*l,3),w=Pe(g.getFullYear(),p?0:g.getMonth(),m||p?1:g.getDate()),_=Al(w*l,3);if(m||p){let t=m?c/o:0,n=p?c/s:0,i=x==_?x:Al(Pe(w.getFullYear()+n,w.getMonth()+t,1)*l,3),r=new Date(rl(i/l)),u=r.getFullYear(),a=r.getMonth();for(let o=0;f>=i;o++){let s=Pe(u+n*o,a+t*o,1),r=s-e(Al(s*l,3));i=Al((+s+r)*l,3),i>f||d.push(i)}}else{let o=i>c?c:i,s=_+(sl(a)-sl(x))+Dl(x-_,o);d.push(s);let p=e(s),m=p.getHours()+p.getMinutes()/t+p.getSeconds()/n,g=c/n,w=h/r.axes[u]._space;for(;s=Al(s+c,1==l?0:3),f>=s;)if(g>1){let l=sl(Al(m+g,6))%24,t=e(s).getHours()-l;t>1&&(t=-1),s-=t*n,m=(m+g)%24,.7>Al((s-d[d.length-1])/c,3)*w||d.push(s)}else d.push(s)}return d}}]}const[ke,ye,Me]=ve(1),[Se,Te,Ee]=ve(.001);function ze(l,e){return l.map((l=>l.map(((t,n)=>0==n||8==n||null==t?t:e(1==n||0==l[8]?t:l[1]+t)))))}function De(l,e){return(t,n,i,o,s)=>{let r,u,a,f,c,h,d=e.find((l=>s>=l[0]))||e[e.length-1];return n.map((e=>{let t=l(e),n=t.getFullYear(),i=t.getMonth(),o=t.getDate(),s=t.getHours(),p=t.getMinutes(),m=t.getSeconds(),g=n!=r&&d[2]||i!=u&&d[3]||o!=a&&d[4]||s!=f&&d[5]||p!=c&&d[6]||m!=h&&d[7]||d[1];return r=n,u=i,a=o,f=s,c=p,h=m,g(t)}))}}function Pe(l,e,t){return new Date(l,e,t)}function Ae(l,e){return e(l)}function We(l,e){return(t,n,i,o)=>null==o?w:e(l(n))}Cl(2,-53,53,[1]);const Ye={show:!0,live:!0,isolate:!1,mount:()=>{},markers:{show:!0,width:2,stroke:function(l,e){let t=l.series[e];return t.width?t.stroke(l,e):t.points.width?t.points.stroke(l,e):null},fill:function(l,e){return l.series[e].fill(l,e)},dash:"solid"},idx:null,idxs:null,values:[]},Ce=[0,0];function He(l,e,t,n=!0){return l=>{0==l.button&&(!n||l.target==e)&&t(l)}}function Fe(l,e,t,n=!0){return l=>{(!n||l.target==e)&&t(l)}}const Re={show:!0,x:!0,y:!0,lock:!1,move:function(l,e,t){return Ce[0]=e,Ce[1]=t,Ce},points:{one:!1,show:function(l,e){let i=l.cursor.points,o=D(),s=i.size(l,e);E(o,t,s),E(o,n,s);let r=s/-2;E(o,"marginLeft",r),E(o,"marginTop",r);let u=i.width(l,e,s);return u&&E(o,"borderWidth",u),o},size:function(l,e){return l.series[e].points.size},width:0,stroke:function(l,e){let t=l.series[e].points;return t._stroke||t._fill},fill:function(l,e){let t=l.series[e].points;return t._fill||t._stroke}},bind:{mousedown:He,mouseup:He,click:He,dblclick:He,mousemove:Fe,mouseleave:Fe,mouseenter:Fe},drag:{setScale:!0,x:!0,y:!1,dist:0,uni:null,click:(l,e)=>{e.stopPropagation(),e.stopImmediatePropagation()},_x:!1,_y:!1},focus:{dist:(l,e,t,n,i)=>n-i,prox:-1,bias:0},hover:{skip:[void 0],prox:null,bias:0},left:-10,top:-10,idx:null,dataIdx:null,idxs:null,event:null},Ge={show:!0,stroke:"rgba(0,0,0,0.07)",width:2},Ie=Bl({},Ge,{filter:kl}),Le=Bl({},Ie,{size:10}),Oe=Bl({},Ge,{show:!1}),Ne='12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Noto Sans", sans-serif, "Apple Color Emoji", "Segoe UI Emoji", "Segoe UI Symbol", "Noto Color Emoji"',je="bold "+Ne,Ue={show:!0,scale:"x",stroke:u,space:50,gap:5,alignTo:1,size:50,labelGap:0,labelSize:30,labelFont:je,side:2,grid:Ie,ticks:Le,border:Oe,font:Ne,lineGap:1.5,rotate:0},Ve={show:!0,scale:"x",auto:!1,sorted:1,min:gl,max:-gl,idxs:[]};function Be(l,e){return e.map((l=>null==l?"":tl(l)))}function $e(l,e,t,n,i,o,s){let r=[],u=Wl.get(i)||0;for(let l=t=s?t:Al(Dl(t,i),u);n>=l;l=Al(l+i,u))r.push(Object.is(l,-0)?0:l);return r}function Je(l,e,t,n,i){const o=[],s=l.scales[l.axes[e].scale].log,r=sl((10==s?dl:pl)(t));i=cl(s,r),10==s&&(i=fe[L(i,fe)]);let u=t,a=i*s;10==s&&(a=fe[L(a,fe)]);do{o.push(u),u+=i,10!=s||Wl.has(u)||(u=Al(u,Wl.get(i))),a>u||(a=(i=u)*s,10==s&&(a=fe[L(a,fe)]))}while(n>=u);return o}function qe(l,e,t,n,i){let o=l.scales[l.axes[e].scale].asinh,s=n>o?Je(l,e,fl(o,t),n,i):[o],r=0>n||t>0?[]:[0];return(-o>t?Je(l,e,fl(o,-n),-t,i):[o]).reverse().map((l=>-l)).concat(r,s)}const Ke=/./,Xe=/[12357]/,Ze=/[125]/,Qe=/1/,lt=(l,e,t,n)=>l.map(((l,i)=>4==e&&0==l||i%n==0&&t.test(l.toExponential()[0>l?1:0])?l:null));function et(l,e,t){let n=l.axes[t],i=n.scale,o=l.scales[i],s=l.valToPos,r=n._space,u=s(10,i),a=s(9,i)-u<r?s(7,i)-u<r?s(5,i)-u<r?Qe:Ze:Xe:Ke;if(a==Qe){let l=ol(s(1,i)-u);if(r>l)return lt(e.slice().reverse(),o.distr,a,ul(r/l)).reverse()}return lt(e,o.distr,a,1)}function tt(l,e,t){let n=l.axes[t],i=n.scale,o=n._space,s=l.valToPos,r=ol(s(1,i)-s(2,i));return o>r?lt(e.slice().reverse(),3,Ke,ul(o/r)).reverse():e}function nt(l,e,t,n){return null==n?w:null==e?"":tl(e)}const it={show:!0,scale:"y",stroke:u,space:30,gap:5,alignTo:1,size:50,labelGap:0,labelSize:30,labelFont:je,side:3,grid:Ie,ticks:Le,border:Oe,font:Ne,lineGap:1.5,rotate:0},ot={scale:null,auto:!0,sorted:0,min:gl,max:-gl},st=(l,e,t,n,i)=>i,rt={show:!0,auto:!0,sorted:0,gaps:st,alpha:1,facets:[Bl({},ot,{scale:"x"}),Bl({},ot,{scale:"y"})]},ut={scale:"y",auto:!0,sorted:0,show:!0,spanGaps:!1,gaps:st,alpha:1,points:{show:function(l,e){let{scale:t,idxs:n}=l.series[0],i=l._data[0],o=l.valToPos(i[n[0]],t,!0),s=l.valToPos(i[n[1]],t,!0);return ol(s-o)/(l.series[e].points.space*y)>=n[1]-n[0]},filter:null},values:null,min:gl,max:-gl,idxs:[],path:null,clip:null};function at(l,e,t){return t/10}const ft={time:!0,auto:!0,distr:1,log:10,asinh:1,min:null,max:null,dir:1,ori:0},ct=Bl({},ft,{time:!1,ori:1}),ht={};function dt(l){let e=ht[l];return e||(e={key:l,plots:[],sub(l){e.plots.push(l)},unsub(l){e.plots=e.plots.filter((e=>e!=l))},pub(l,t,n,i,o,s,r){for(let u=0;e.plots.length>u;u++)e.plots[u]!=t&&e.plots[u].pub(l,t,n,i,o,s,r)}},null!=l&&(ht[l]=e)),e}function pt(l,e,t){const n=l.mode,i=l.series[e],o=2==n?l._data[e]:l._data,s=l.scales,r=l.bbox;let u=o[0],a=2==n?o[1]:o[e],f=2==n?s[i.facets[0].scale]:s[l.series[0].scale],c=2==n?s[i.facets[1].scale]:s[i.scale],h=r.left,d=r.top,p=r.width,m=r.height,g=l.valToPosH,x=l.valToPosV;return 0==f.ori?t(i,u,a,f,c,g,x,h,d,p,m,kt,Mt,Tt,zt,Pt):t(i,u,a,f,c,x,g,d,h,m,p,yt,St,Et,Dt,At)}function mt(l,e){let t=0,n=0,i=Q(l.bands,Fl);for(let l=0;i.length>l;l++){let o=i[l];o.series[0]==e?t=o.dir:o.series[1]==e&&(n|=1==o.dir?1:2)}return[t,1==n?-1:2==n?1:3==n?2:0]}function gt(l,e,t,n,i){let o=l.series[e],s=l.scales[2==l.mode?o.facets[1].scale:o.scale];return-1==i?s.min:1==i?s.max:3==s.distr?1==s.dir?s.min:s.max:0}function xt(l,e,t,n,i,o){return pt(l,e,((l,e,s,r,u,a,f,c,h,d,p)=>{let m=l.pxRound;const g=0==r.ori?Mt:St;let x,w;1==r.dir*(0==r.ori?1:-1)?(x=t,w=n):(x=n,w=t);let _=m(a(e[x],r,d,c)),b=m(f(s[x],u,p,h)),v=m(a(e[w],r,d,c)),k=m(f(1==o?u.max:u.min,u,p,h)),y=new Path2D(i);return g(y,v,k),g(y,_,k),g(y,_,b),y}))}function wt(l,e,t,n,i,o){let s=null;if(l.length>0){s=new Path2D;const r=0==e?Tt:Et;let u=t;for(let e=0;l.length>e;e++){let t=l[e];if(t[1]>t[0]){let l=t[0]-u;l>0&&r(s,u,n,l,n+o),u=t[1]}}let a=t+i-u,f=10;a>0&&r(s,u,n-f/2,a,n+o+f)}return s}function _t(l,e,t,n,i,o,s){let r=[],u=l.length;for(let a=1==i?t:n;a>=t&&n>=a;a+=i)if(null===e[a]){let f=a,c=a;if(1==i)for(;++a<=n&&null===e[a];)c=a;else for(;--a>=t&&null===e[a];)c=a;let h=o(l[f]),d=c==f?h:o(l[c]),p=f-i;h=s>0||0>p||p>=u?h:o(l[p]);let m=c+i;d=0>s||0>m||m>=u?d:o(l[m]),h>d||r.push([h,d])}return r}function bt(l){return 0==l?vl:1==l?rl:e=>zl(e,l)}function vt(l){let e=0==l?kt:yt,t=0==l?(l,e,t,n,i,o)=>{l.arcTo(e,t,n,i,o)}:(l,e,t,n,i,o)=>{l.arcTo(t,e,i,n,o)},n=0==l?(l,e,t,n,i)=>{l.rect(e,t,n,i)}:(l,e,t,n,i)=>{l.rect(t,e,i,n)};return(l,i,o,s,r,u=0,a=0)=>{0==u&&0==a?n(l,i,o,s,r):(u=al(u,s/2,r/2),a=al(a,s/2,r/2),e(l,i+u,o),t(l,i+s,o,i+s,o+r,u),t(l,i+s,o+r,i,o+r,a),t(l,i,o+r,i,o,a),t(l,i,o,i+s,o,u),l.closePath())}}const kt=(l,e,t)=>{l.moveTo(e,t)},yt=(l,e,t)=>{l.moveTo(t,e)},Mt=(l,e,t)=>{l.lineTo(e,t)},St=(l,e,t)=>{l.lineTo(t,e)},Tt=vt(0),Et=vt(1),zt=(l,e,t,n,i,o)=>{l.arc(e,t,n,i,o)},Dt=(l,e,t,n,i,o)=>{l.arc(t,e,n,i,o)},Pt=(l,e,t,n,i,o,s)=>{l.bezierCurveTo(e,t,n,i,o,s)},At=(l,e,t,n,i,o,s)=>{l.bezierCurveTo(t,e,i,n,s,o)};function Wt(){return(l,e,t,n,i)=>pt(l,e,((e,o,s,r,u,a,f,c,h,d,p)=>{let m,g,{pxRound:x,points:w}=e;0==r.ori?(m=kt,g=zt):(m=yt,g=Dt);const _=Al(w.width*y,3);let b=(w.size-w.width)/2*y,v=Al(2*b,3),k=new Path2D,M=new Path2D,{left:S,top:T,width:E,height:z}=l.bbox;Tt(M,S-v,T-v,E+2*v,z+2*v);const D=l=>{if(null!=s[l]){let e=x(a(o[l],r,d,c)),t=x(f(s[l],u,p,h));m(k,e+b,t),g(k,e,t,b,0,2*il)}};if(i)i.forEach(D);else for(let l=t;n>=l;l++)D(l);return{stroke:_>0?k:null,fill:k,clip:M,flags:3}}))}function Yt(l){return(e,t,n,i,o,s)=>{n!=i&&(o!=n&&s!=n&&l(e,t,n),o!=i&&s!=i&&l(e,t,i),l(e,t,s))}}const Ct=Yt(Mt),Ht=Yt(St);function Ft(l){const e=Q(l?.alignGaps,0);return(l,t,n,i)=>pt(l,t,((o,s,r,u,a,f,c,h,d,p,m)=>{[n,i]=U(r,n,i);let g,x,w=o.pxRound,_=l=>w(f(l,u,p,h)),b=l=>w(c(l,a,m,d));0==u.ori?(g=Mt,x=Ct):(g=St,x=Ht);const v=u.dir*(0==u.ori?1:-1),k={stroke:new Path2D,fill:null,clip:null,band:null,gaps:null,flags:1},y=k.stroke;let M=!1;if(i-n<4*p)for(let l=1==v?n:i;l>=n&&i>=l;l+=v){let e=r[l];null===e?M=!0:null!=e&&g(y,_(s[l]),b(e))}else{let e,t,o,a=e=>l.posToVal(e,u.key,!0),f=null,c=null,h=_(s[1==v?n:i]),d=_(s[n]),p=_(s[i]),m=a(1==v?d+1:p-1);for(let l=1==v?n:i;l>=n&&i>=l;l+=v){let n=s[l],i=(1==v?m>n:n>m)?h:_(n),o=r[l];i==h?null!=o?(t=o,null==f?(g(y,i,b(t)),e=f=c=t):f>t?f=t:t>c&&(c=t)):null===o&&(M=!0):(null!=f&&x(y,h,b(f),b(c),b(e),b(t)),null!=o?(t=o,g(y,i,b(t)),f=c=e=t):(f=c=null,null===o&&(M=!0)),h=i,m=a(h+v))}null!=f&&f!=c&&o!=h&&x(y,h,b(f),b(c),b(e),b(t))}let[S,T]=mt(l,t);if(null!=o.fill||0!=S){let e=k.fill=new Path2D(y),r=b(o.fillTo(l,t,o.min,o.max,S)),u=_(s[n]),a=_(s[i]);-1==v&&([a,u]=[u,a]),g(e,a,r),g(e,u,r)}if(!o.spanGaps){let a=[];M&&a.push(..._t(s,r,n,i,v,_,e)),k.gaps=a=o.gaps(l,t,n,i,a),k.clip=wt(a,u.ori,h,d,p,m)}return 0!=T&&(k.band=2==T?[xt(l,t,n,i,y,-1),xt(l,t,n,i,y,1)]:xt(l,t,n,i,y,T)),k}))}function Rt(l,e,t,n,i,o,s=gl){if(l.length>1){let r=null;for(let u=0,a=1/0;l.length>u;u++)if(void 0!==e[u]){if(null!=r){let e=ol(l[u]-l[r]);a>e&&(a=e,s=ol(t(l[u],n,i,o)-t(l[r],n,i,o)))}r=u}}return s}function Gt(l,e,t,n,i){const o=l.length;if(2>o)return null;const s=new Path2D;if(t(s,l[0],e[0]),2==o)n(s,l[1],e[1]);else{let t=Array(o),n=Array(o-1),r=Array(o-1),u=Array(o-1);for(let t=0;o-1>t;t++)r[t]=e[t+1]-e[t],u[t]=l[t+1]-l[t],n[t]=r[t]/u[t];t[0]=n[0];for(let l=1;o-1>l;l++)0===n[l]||0===n[l-1]||n[l-1]>0!=n[l]>0?t[l]=0:(t[l]=3*(u[l-1]+u[l])/((2*u[l]+u[l-1])/n[l-1]+(u[l]+2*u[l-1])/n[l]),isFinite(t[l])||(t[l]=0));t[o-1]=n[o-2];for(let n=0;o-1>n;n++)i(s,l[n]+u[n]/3,e[n]+t[n]*u[n]/3,l[n+1]-u[n]/3,e[n+1]-t[n+1]*u[n]/3,l[n+1],e[n+1])}return s}const It=new Set;function Lt(){for(let l of It)l.syncRect(!0)}_&&(G("resize",v,Lt),G("scroll",v,Lt,!0),G(x,v,(()=>{en.pxRatio=y})));const Ot=Ft(),Nt=Wt();function jt(l,e,t,n){return(n?[l[0],l[1]].concat(l.slice(2)):[l[0]].concat(l.slice(1))).map(((l,n)=>Ut(l,n,e,t)))}function Ut(l,e,t,n){return Bl({},0==e?t:n,l)}function Vt(l,e,t){return null==e?Rl:[e,t]}const Bt=Vt;function $t(l,e,t){return null==e?Rl:Z(e,t,J,!0)}function Jt(l,e,t,n){return null==e?Rl:B(e,t,l.scales[n].log,!1)}const qt=Jt;function Kt(l,e,t,n){return null==e?Rl:$(e,t,l.scales[n].log,!1)}const Xt=Kt;function Zt(l,e,t,n,i){let o=fl(xl(l),xl(e)),s=e-l,r=L(i/n*s,t);do{let l=t[r],e=n*l/s;if(e>=i&&17>=o+(5>l?Wl.get(l):0))return[l,e]}while(++r<t.length);return[0,0]}function Qt(l){let e,t;return[l=l.replace(/(\d+)px/,((l,n)=>(e=rl((t=+n)*y))+"px")),e,t]}function ln(l){l.show&&[l.font,l.labelFont].forEach((l=>{let e=Al(l[2]*y,1);l[0]=l[0].replace(/[0-9.]+px/,e+"px"),l[1]=e}))}function en(u,g,_){const k={mode:Q(u.mode,1)},M=k.mode;function P(l,e,t,n){let i=e.valToPct(l);return n+t*(-1==e.dir?1-i:i)}function W(l,e,t,n){let i=e.valToPct(l);return n+t*(-1==e.dir?i:1-i)}function C(l,e,t,n){return 0==e.ori?P(l,e,t,n):W(l,e,t,n)}k.valToPosH=P,k.valToPosV=W;let F=!1;k.status=0;const R=k.root=D("uplot");null!=u.id&&(R.id=u.id),S(R,u.class),u.title&&(D("u-title",R).textContent=u.title);const O=z("canvas"),K=k.ctx=O.getContext("2d"),X=D("u-wrap",R);G("click",X,(l=>{l.target===el&&(Nn!=Gn||jn!=In)&&Zn.click(k,l)}),!0);const ll=k.under=D("u-under",X);X.appendChild(O);const el=k.over=D("u-over",X),tl=+Q((u=Vl(u)).pxAlign,1),sl=bt(tl);(u.plugins||[]).forEach((l=>{l.opts&&(u=l.opts(k,u)||u)}));const hl=u.ms||.001,pl=k.series=1==M?jt(u.series||[],Ve,ut,!1):function(l,e){return l.map(((l,t)=>0==t?{}:Bl({},e,l)))}(u.series||[null],rt),xl=k.axes=jt(u.axes||[],Ue,it,!0),vl=k.scales={},Tl=k.bands=u.bands||[];Tl.forEach((l=>{l.fill=bl(l.fill||null),l.dir=Q(l.dir,-1)}));const El=2==M?pl[1].facets[0].scale:pl[0].scale,Dl={axes:function(){for(let l=0;xl.length>l;l++){let e=xl[l];if(!e.show||!e._show)continue;let t,n,u=e.side,a=u%2,f=e.stroke(k,l),c=0==u||3==u?-1:1,[h,d]=e._found;if(null!=e.label){let s=rl((e._lpos+e.labelGap*c)*y);_n(e.labelFont[0],f,"center",2==u?i:o),K.save(),1==a?(t=n=0,K.translate(s,rl(lt+st/2)),K.rotate((3==u?-il:il)/2)):(t=rl(Qe+ot/2),n=s);let r=_l(e.label)?e.label(k,l,h,d):e.label;K.fillText(r,t,n),K.restore()}if(0==d)continue;let p=vl[e.scale],m=0==a?ot:st,g=0==a?Qe:lt,x=e._splits,w=2==p.distr?x.map((l=>pn[l])):x,_=2==p.distr?pn[x[1]]-pn[x[0]]:h,b=e.ticks,v=e.border,M=b.show?b.size:0,S=rl(M*y),T=rl((2==e.alignTo?e._size-M-e.gap:e.gap)*y),E=e._rotate*-il/180,z=sl(e._pos*y),D=z+(S+T)*c;n=0==a?D:0,t=1==a?D:0,_n(e.font[0],f,1==e.align?s:2==e.align?r:E>0?s:0>E?r:0==a?"center":3==u?r:s,E||1==a?"middle":2==u?i:o);let P=e.font[1]*e.lineGap,A=x.map((l=>sl(C(l,p,m,g)))),W=e._values;for(let l=0;W.length>l;l++){let e=W[l];if(null!=e){0==a?t=A[l]:n=A[l],e=""+e;let i=-1==e.indexOf("\n")?[e]:e.split(/\n/gm);for(let l=0;i.length>l;l++){let e=i[l];E?(K.save(),K.translate(t,n+l*P),K.rotate(E),K.fillText(e,0,0),K.restore()):K.fillText(e,t,n+l*P)}}}b.show&&zn(A,b.filter(k,w,l,d,_),a,u,z,S,Al(b.width*y,3),b.stroke(k,l),b.dash,b.cap);let Y=e.grid;Y.show&&zn(A,Y.filter(k,w,l,d,_),a,0==a?2:1,0==a?lt:Qe,0==a?st:ot,Al(Y.width*y,3),Y.stroke(k,l),Y.dash,Y.cap),v.show&&zn([z],[1],0==a?1:0,0==a?1:2,1==a?lt:Qe,1==a?st:ot,Al(v.width*y,3),v.stroke(k,l),v.dash,v.cap)}Ci("drawAxes")},series:function(){if(Gt>0){let l=pl.some((l=>l._focus))&&dn!=Tt.alpha;l&&(K.globalAlpha=dn=Tt.alpha),pl.forEach(((l,e)=>{if(e>0&&l.show&&(kn(e,!1),kn(e,!0),null==l._paths)){let t=dn;dn!=l.alpha&&(K.globalAlpha=dn=l.alpha);let n=2==M?[0,g[e][0].length-1]:function(l){let e=wl(Lt-1,0,Gt-1),t=wl(en+1,0,Gt-1);for(;null==l[e]&&e>0;)e--;for(;null==l[t]&&Gt-1>t;)t++;return[e,t]}(g[e]);l._paths=l.paths(k,e,n[0],n[1]),dn!=t&&(K.globalAlpha=dn=t)}})),pl.forEach(((l,e)=>{if(e>0&&l.show){let t=dn;dn!=l.alpha&&(K.globalAlpha=dn=l.alpha),null!=l._paths&&yn(e,!1);{let t=null!=l._paths?l._paths.gaps:null,n=l.points.show(k,e,Lt,en,t),i=l.points.filter(k,e,n,t);(n||i)&&(l.points._paths=l.points.paths(k,e,Lt,en,i),yn(e,!0))}dn!=t&&(K.globalAlpha=dn=t),Ci("drawSeries",e)}})),l&&(K.globalAlpha=dn=1)}}},Pl=(u.drawOrder||["axes","series"]).map((l=>Dl[l]));function Cl(l){const e=3==l.distr?e=>dl(e>0?e:l.clamp(k,e,l.min,l.max,l.key)):4==l.distr?e=>ml(e,l.asinh):100==l.distr?e=>l.fwd(e):l=>l;return t=>{let n=e(t),{_min:i,_max:o}=l;return(n-i)/(o-i)}}function Il(l){let e=vl[l];if(null==e){let t=(u.scales||Hl)[l]||Hl;if(null!=t.from){Il(t.from);let e=Bl({},vl[t.from],t,{key:l});e.valToPct=Cl(e),vl[l]=e}else{e=vl[l]=Bl({},l==El?ft:ct,t),e.key=l;let n=e.time,i=e.range,o=Gl(i);if((l!=El||2==M&&!n)&&(!o||null!=i[0]&&null!=i[1]||(i={min:null==i[0]?q:{mode:1,hard:i[0],soft:i[0]},max:null==i[1]?q:{mode:1,hard:i[1],soft:i[1]}},o=!1),!o&&Ol(i))){let l=i;i=(e,t,n)=>null==t?Rl:Z(t,n,l)}e.range=bl(i||(n?Bt:l==El?3==e.distr?qt:4==e.distr?Xt:Vt:3==e.distr?Jt:4==e.distr?Kt:$t)),e.auto=bl(!o&&e.auto),e.clamp=bl(e.clamp||at),e._min=e._max=null,e.valToPct=Cl(e)}}}Il("x"),Il("y"),1==M&&pl.forEach((l=>{Il(l.scale)})),xl.forEach((l=>{Il(l.scale)}));for(let l in u.scales)Il(l);const jl=vl[El],Ul=jl.distr;let $l,ql;0==jl.ori?(S(R,"u-hz"),$l=P,ql=W):(S(R,"u-vt"),$l=W,ql=P);const Kl={};for(let l in vl){let e=vl[l];null==e.min&&null==e.max||(Kl[l]={min:e.min,max:e.max},e.min=e.max=null)}const Xl=u.tzDate||(l=>new Date(rl(l/hl))),Zl=u.fmtDate||ne,Ql=1==hl?Me(Xl):Ee(Xl),le=De(Xl,ze(1==hl?ye:Te,Zl)),ee=We(Xl,Ae("{YYYY}-{MM}-{DD} {h}:{mm}{aa}",Zl)),te=[],ie=k.legend=Bl({},Ye,u.legend),oe=k.cursor=Bl({},Re,{drag:{y:2==M}},u.cursor),se=ie.show,re=oe.show,ue=ie.markers;let ce,he,de;ie.idxs=te,ue.width=bl(ue.width),ue.dash=bl(ue.dash),ue.stroke=bl(ue.stroke),ue.fill=bl(ue.fill);let pe,me=[],ge=[],xe=!1,we={};if(ie.live){const l=pl[1]?pl[1].values:null;xe=null!=l,pe=xe?l(k,1,0):{_:0};for(let l in pe)we[l]=w}if(se)if(ce=z("table","u-legend",R),de=z("tbody",null,ce),ie.mount(k,ce),xe){he=z("thead",null,ce,de);let l=z("tr",null,he);for(var _e in z("th",null,l),pe)z("th",e,l).textContent=_e}else S(ce,"u-inline"),ie.live&&S(ce,"u-live");const be={show:!0},ve={show:!1},Pe=new Map;function Ce(l,e,t,n=!0){const i=Pe.get(e)||{},o=oe.bind[l](k,e,t,n);o&&(G(l,e,i[l]=o),Pe.set(e,i))}function He(l,e){const t=Pe.get(e)||{};for(let n in t)null!=l&&n!=l||(I(n,e,t[n]),delete t[n]);null==l&&Pe.delete(e)}let Fe=0,Ge=0,Ie=0,Le=0,Oe=0,Ne=0,je=Oe,Ke=Ne,Xe=Ie,Ze=Le,Qe=0,lt=0,ot=0,st=0;k.bbox={};let ht=!1,pt=!1,mt=!1,xt=!1,wt=!1,_t=!1;function vt(l,e,t){(t||l!=k.width||e!=k.height)&&kt(l,e),An(!1),mt=!0,pt=!0,Jn()}function kt(l,e){k.width=Fe=Ie=l,k.height=Ge=Le=e,Oe=Ne=0,function(){let l=!1,e=!1,t=!1,n=!1;xl.forEach((i=>{if(i.show&&i._show){let{side:o,_size:s}=i,r=s+(null!=i.label?i.labelSize:0);r>0&&(o%2?(Ie-=r,3==o?(Oe+=r,n=!0):t=!0):(Le-=r,0==o?(Ne+=r,l=!0):e=!0))}})),Ct[0]=l,Ct[1]=t,Ct[2]=e,Ct[3]=n,Ie-=Rt[1]+Rt[3],Oe+=Rt[3],Le-=Rt[2]+Rt[0],Ne+=Rt[0]}(),function(){let l=Oe+Ie,e=Ne+Le,t=Oe,n=Ne;function i(i,o){switch(i){case 1:return l+=o,l-o;case 2:return e+=o,e-o;case 3:return t-=o,t+o;case 0:return n-=o,n+o}}xl.forEach((l=>{if(l.show&&l._show){let e=l.side;l._pos=i(e,l._size),null!=l.label&&(l._lpos=i(e,l.labelSize))}}))}();let t=k.bbox;Qe=t.left=zl(Oe*y,.5),lt=t.top=zl(Ne*y,.5),ot=t.width=zl(Ie*y,.5),st=t.height=zl(Le*y,.5)}const yt=3;if(k.setSize=function({width:l,height:e}){vt(l,e)},null==oe.dataIdx){let l=oe.hover,e=l.skip=new Set(l.skip??[]);e.add(void 0);let t=l.prox=bl(l.prox),n=l.bias??=0;oe.dataIdx=(l,i,o,s)=>{if(0==i)return o;let r=o,u=t(l,i,o,s)??gl,a=u>=0&&gl>u,f=0==jl.ori?Ie:Le,c=oe.left,h=g[0],d=g[i];if(e.has(d[o])){r=null;let l,t=null,i=null;if(0==n||-1==n)for(l=o;null==t&&l-- >0;)e.has(d[l])||(t=l);if(0==n||1==n)for(l=o;null==i&&l++<d.length;)e.has(d[l])||(i=l);if(null!=t||null!=i)if(a){let l=c-(null==t?-1/0:$l(h[t],jl,f,0)),e=(null==i?1/0:$l(h[i],jl,f,0))-c;l>e?e>u||(r=i):l>u||(r=t)}else r=null==i?t:null==t||o-t>i-o?i:t}else a&&ol(c-$l(h[o],jl,f,0))>u&&(r=null);return r}}const Mt=l=>{oe.event=l};oe.idxs=te,oe._lock=!1;let St=oe.points;St.show=bl(St.show),St.size=bl(St.size),St.stroke=bl(St.stroke),St.width=bl(St.width),St.fill=bl(St.fill);const Tt=k.focus=Bl({},u.focus||{alpha:.3},oe.focus),Et=Tt.prox>=0,zt=Et&&St.one;let Dt=[],Pt=[],At=[];function Wt(l,e){let t=St.show(k,e);if(t instanceof HTMLElement)return S(t,"u-cursor-pt"),S(t,l.class),A(t,-10,-10,Ie,Le),el.insertBefore(t,Dt[e]),t}function Yt(t,n){if(1==M||n>0){let l=1==M&&vl[t.scale].time,e=t.value;t.value=l?Ll(e)?We(Xl,Ae(e,Zl)):e||ee:e||nt,t.label=t.label||(l?"Time":"Value")}if(zt||n>0){t.width=null==t.width?1:t.width,t.paths=t.paths||Ot||yl,t.fillTo=bl(t.fillTo||gt),t.pxAlign=+Q(t.pxAlign,tl),t.pxRound=bt(t.pxAlign),t.stroke=bl(t.stroke||null),t.fill=bl(t.fill||null),t._stroke=t._fill=t._paths=t._focus=null;let l=function(l){return Al(1*(3+2*(l||1)),3)}(fl(1,t.width)),e=t.points=Bl({},{size:l,width:fl(1,.2*l),stroke:t.stroke,space:2*l,paths:Nt,_stroke:null,_fill:null},t.points);e.show=bl(e.show),e.filter=bl(e.filter),e.fill=bl(e.fill),e.stroke=bl(e.stroke),e.paths=bl(e.paths),e.pxAlign=t.pxAlign}if(se){let i=function(t,n){if(0==n&&(xe||!ie.live||2==M))return Rl;let i=[],o=z("tr","u-series",de,de.childNodes[n]);S(o,t.class),t.show||S(o,l);let s=z("th",null,o);if(ue.show){let l=D("u-marker",s);if(n>0){let e=ue.width(k,n);e&&(l.style.border=e+"px "+ue.dash(k,n)+" "+ue.stroke(k,n)),l.style.background=ue.fill(k,n)}}let r=D(e,s);for(var u in t.label instanceof HTMLElement?r.appendChild(t.label):r.textContent=t.label,n>0&&(ue.show||(r.style.color=t.width>0?ue.stroke(k,n):ue.fill(k,n)),Ce("click",s,(l=>{if(oe._lock)return;Mt(l);let e=pl.indexOf(t);if((l.ctrlKey||l.metaKey)!=ie.isolate){let l=pl.some(((l,t)=>t>0&&t!=e&&l.show));pl.forEach(((t,n)=>{n>0&&oi(n,l?n==e?be:ve:be,!0,Fi.setSeries)}))}else oi(e,{show:!t.show},!0,Fi.setSeries)}),!1),Et&&Ce(d,s,(l=>{oe._lock||(Mt(l),oi(pl.indexOf(t),ai,!0,Fi.setSeries))}),!1)),pe){let l=z("td","u-value",o);l.textContent="--",i.push(l)}return[o,i]}(t,n);me.splice(n,0,i[0]),ge.splice(n,0,i[1]),ie.values.push(null)}if(re){te.splice(n,0,null);let l=null;zt?0==n&&(l=Wt(t,n)):n>0&&(l=Wt(t,n)),Dt.splice(n,0,l),Pt.splice(n,0,0),At.splice(n,0,0)}Ci("addSeries",n)}k.addSeries=function(l,e){e=null==e?pl.length:e,l=1==M?Ut(l,e,Ve,ut):Ut(l,e,{},rt),pl.splice(e,0,l),Yt(pl[e],e)},k.delSeries=function(l){if(pl.splice(l,1),se){ie.values.splice(l,1),ge.splice(l,1);let e=me.splice(l,1)[0];He(null,e.firstChild),e.remove()}re&&(te.splice(l,1),Dt.splice(l,1)[0].remove(),Pt.splice(l,1),At.splice(l,1)),Ci("delSeries",l)};const Ct=[!1,!1,!1,!1];function Ht(l,e,t){let[n,i,o,s]=t,r=e%2,u=0;return 0==r&&(s||i)&&(u=0==e&&!n||2==e&&!o?rl(Ue.size/3):0),1==r&&(n||o)&&(u=1==e&&!i||3==e&&!s?rl(it.size/2):0),u}const Ft=k.padding=(u.padding||[Ht,Ht,Ht,Ht]).map((l=>bl(Q(l,Ht)))),Rt=k._padding=Ft.map(((l,e)=>l(k,e,Ct,0)));let Gt,Lt=null,en=null;const tn=1==M?pl[0].idxs:null;let nn,on,sn,rn,un,an,fn,cn,hn,dn,pn=null,mn=!1;function gn(l,e){if(k.data=k._data=g=null==l?[]:l,2==M){Gt=0;for(let l=1;pl.length>l;l++)Gt+=g[l][0].length}else{0==g.length&&(k.data=k._data=g=[[]]),pn=g[0],Gt=pn.length;let l=g;if(2==Ul){l=g.slice();let e=l[0]=Array(Gt);for(let l=0;Gt>l;l++)e[l]=l}k._data=g=l}if(An(!0),Ci("setData"),2==Ul&&(mt=!0),!1!==e){let l=jl;l.auto(k,mn)?xn():ii(El,l.min,l.max),xt=xt||oe.left>=0,_t=!0,Jn()}}function xn(){let l,e;mn=!0,1==M&&(Gt>0?(Lt=tn[0]=0,en=tn[1]=Gt-1,l=g[0][Lt],e=g[0][en],2==Ul?(l=Lt,e=en):l==e&&(3==Ul?[l,e]=B(l,l,jl.log,!1):4==Ul?[l,e]=$(l,l,jl.log,!1):jl.time?e=l+rl(86400/hl):[l,e]=Z(l,e,J,!0))):(Lt=tn[0]=l=null,en=tn[1]=e=null)),ii(El,l,e)}function wn(l,e,t,n,i,o){l??=a,t??=Fl,n??="butt",i??=a,o??="round",l!=nn&&(K.strokeStyle=nn=l),i!=on&&(K.fillStyle=on=i),e!=sn&&(K.lineWidth=sn=e),o!=un&&(K.lineJoin=un=o),n!=an&&(K.lineCap=an=n),t!=rn&&K.setLineDash(rn=t)}function _n(l,e,t,n){e!=on&&(K.fillStyle=on=e),l!=fn&&(K.font=fn=l),t!=cn&&(K.textAlign=cn=t),n!=hn&&(K.textBaseline=hn=n)}function bn(l,e,t,n,i=0){if(n.length>0&&l.auto(k,mn)&&(null==e||null==e.min)){let e=Q(Lt,0),o=Q(en,n.length-1),s=null==t.min?function(l,e,t,n=0,i=!1){let o=i?V:U,s=i?j:N;[e,t]=o(l,e,t);let r=l[e],u=l[e];if(e>-1)if(1==n)r=l[e],u=l[t];else if(-1==n)r=l[t],u=l[e];else for(let n=e;t>=n;n++){let e=l[n];s(e)&&(r>e?r=e:e>u&&(u=e))}return[r??gl,u??-gl]}(n,e,o,i,3==l.distr):[t.min,t.max];l.min=al(l.min,t.min=s[0]),l.max=fl(l.max,t.max=s[1])}}k.setData=gn;const vn={min:null,max:null};function kn(l,e){let t=e?pl[l].points:pl[l];t._stroke=t.stroke(k,l),t._fill=t.fill(k,l)}function yn(l,e){let t=e?pl[l].points:pl[l],{stroke:n,fill:i,clip:o,flags:s,_stroke:r=t._stroke,_fill:u=t._fill,_width:a=t.width}=t._paths;a=Al(a*y,3);let f=null,c=a%2/2;e&&null==u&&(u=a>0?"#fff":r);let h=1==t.pxAlign&&c>0;if(h&&K.translate(c,c),!e){let l=Qe-a/2,e=lt-a/2,t=ot+a,n=st+a;f=new Path2D,f.rect(l,e,t,n)}e?Sn(r,a,t.dash,t.cap,u,n,i,s,o):function(l,e,t,n,i,o,s,r,u,a,f){let c=!1;0!=u&&Tl.forEach(((h,d)=>{if(h.series[0]==l){let l,p=pl[h.series[1]],m=g[h.series[1]],x=(p._paths||Hl).band;Gl(x)&&(x=1==h.dir?x[0]:x[1]);let w=null;p.show&&x&&function(l,e,t){for(e=Q(e,0),t=Q(t,l.length-1);t>=e;){if(null!=l[e])return!0;e++}return!1}(m,Lt,en)?(w=h.fill(k,d)||o,l=p._paths.clip):x=null,Sn(e,t,n,i,w,s,r,u,a,f,l,x),c=!0}})),c||Sn(e,t,n,i,o,s,r,u,a,f)}(l,r,a,t.dash,t.cap,u,n,i,s,f,o),h&&K.translate(-c,-c)}const Mn=3;function Sn(l,e,t,n,i,o,s,r,u,a,f,c){wn(l,e,t,n,i),(u||a||c)&&(K.save(),u&&K.clip(u),a&&K.clip(a)),c?(r&Mn)==Mn?(K.clip(c),f&&K.clip(f),En(i,s),Tn(l,o,e)):2&r?(En(i,s),K.clip(c),Tn(l,o,e)):1&r&&(K.save(),K.clip(c),f&&K.clip(f),En(i,s),K.restore(),Tn(l,o,e)):(En(i,s),Tn(l,o,e)),(u||a||c)&&K.restore()}function Tn(l,e,t){t>0&&(e instanceof Map?e.forEach(((l,e)=>{K.strokeStyle=nn=e,K.stroke(l)})):null!=e&&l&&K.stroke(e))}function En(l,e){e instanceof Map?e.forEach(((l,e)=>{K.fillStyle=on=e,K.fill(l)})):null!=e&&l&&K.fill(e)}function zn(l,e,t,n,i,o,s,r,u,a){let f=s%2/2;1==tl&&K.translate(f,f),wn(r,s,u,a,r),K.beginPath();let c,h,d,p,m=i+(0==n||3==n?-o:o);0==t?(h=i,p=m):(c=i,d=m);for(let n=0;l.length>n;n++)null!=e[n]&&(0==t?c=d=l[n]:h=p=l[n],K.moveTo(c,h),K.lineTo(d,p));K.stroke(),1==tl&&K.translate(-f,-f)}function Dn(l){let e=!0;return xl.forEach(((t,n)=>{if(!t.show)return;let i=vl[t.scale];if(null==i.min)return void(t._show&&(e=!1,t._show=!1,An(!1)));t._show||(e=!1,t._show=!0,An(!1));let o=t.side,s=o%2,{min:r,max:u}=i,[a,f]=function(l,e,t,n){let i,o=xl[l];if(n>0){let s=o._space=o.space(k,l,e,t,n);i=Zt(e,t,o._incrs=o.incrs(k,l,e,t,n,s),n,s)}else i=[0,0];return o._found=i}(n,r,u,0==s?Ie:Le);if(0==f)return;let c=t._splits=t.splits(k,n,r,u,a,f,2==i.distr),h=2==i.distr?c.map((l=>pn[l])):c,d=2==i.distr?pn[c[1]]-pn[c[0]]:a,p=t._values=t.values(k,t.filter(k,h,n,f,d),n,f,d);t._rotate=2==o?t.rotate(k,p,n,f):0;let m=t._size;t._size=ul(t.size(k,p,n,l)),null!=m&&t._size!=m&&(e=!1)})),e}function Pn(l){let e=!0;return Ft.forEach(((t,n)=>{let i=t(k,n,Ct,l);i!=Rt[n]&&(e=!1),Rt[n]=i})),e}function An(l){pl.forEach(((e,t)=>{t>0&&(e._paths=null,l&&(1==M?(e.min=null,e.max=null):e.facets.forEach((l=>{l.min=null,l.max=null}))))}))}let Wn,Yn,Cn,Hn,Fn,Rn,Gn,In,Ln,On,Nn,jn,Un=!1,Vn=!1,Bn=[];function $n(){Vn=!1;for(let l=0;Bn.length>l;l++)Ci(...Bn[l]);Bn.length=0}function Jn(){Un||(Jl(qn),Un=!0)}function qn(){if(ht&&(function(){for(let l in vl){let e=vl[l];null==Kl[l]&&(null==e.min||null!=Kl[El]&&e.auto(k,mn))&&(Kl[l]=vn)}for(let l in vl){let e=vl[l];null==Kl[l]&&null!=e.from&&null!=Kl[e.from]&&(Kl[l]=vn)}null!=Kl[El]&&An(!0);let l={};for(let e in Kl){let t=Kl[e];if(null!=t){let n=l[e]=Vl(vl[e],Nl);if(null!=t.min)Bl(n,t);else if(e!=El||2==M)if(0==Gt&&null==n.from){let l=n.range(k,null,null,e);n.min=l[0],n.max=l[1]}else n.min=gl,n.max=-gl}}if(Gt>0){pl.forEach(((e,t)=>{if(1==M){let n=e.scale,i=Kl[n];if(null==i)return;let o=l[n];if(0==t){let l=o.range(k,o.min,o.max,n);o.min=l[0],o.max=l[1],Lt=L(o.min,g[0]),en=L(o.max,g[0]),en-Lt>1&&(o.min>g[0][Lt]&&Lt++,g[0][en]>o.max&&en--),e.min=pn[Lt],e.max=pn[en]}else e.show&&e.auto&&bn(o,i,e,g[t],e.sorted);e.idxs[0]=Lt,e.idxs[1]=en}else if(t>0&&e.show&&e.auto){let[n,i]=e.facets,o=n.scale,s=i.scale,[r,u]=g[t],a=l[o],f=l[s];null!=a&&bn(a,Kl[o],n,r,n.sorted),null!=f&&bn(f,Kl[s],i,u,i.sorted),e.min=i.min,e.max=i.max}}));for(let e in l){let t=l[e],n=Kl[e];if(null==t.from&&(null==n||null==n.min)){let l=t.range(k,t.min==gl?null:t.min,t.max==-gl?null:t.max,e);t.min=l[0],t.max=l[1]}}}for(let e in l){let t=l[e];if(null!=t.from){let n=l[t.from];if(null==n.min)t.min=t.max=null;else{let l=t.range(k,n.min,n.max,e);t.min=l[0],t.max=l[1]}}}let e={},t=!1;for(let n in l){let i=l[n],o=vl[n];if(o.min!=i.min||o.max!=i.max){o.min=i.min,o.max=i.max;let l=o.distr;o._min=3==l?dl(o.min):4==l?ml(o.min,o.asinh):100==l?o.fwd(o.min):o.min,o._max=3==l?dl(o.max):4==l?ml(o.max,o.asinh):100==l?o.fwd(o.max):o.max,e[n]=t=!0}}if(t){pl.forEach(((l,t)=>{2==M?t>0&&e.y&&(l._paths=null):e[l.scale]&&(l._paths=null)}));for(let l in e)mt=!0,Ci("setScale",l);re&&oe.left>=0&&(xt=_t=!0)}for(let l in Kl)Kl[l]=null}(),ht=!1),mt&&(function(){let l=!1,e=0;for(;!l;){e++;let t=Dn(e),n=Pn(e);l=e==yt||t&&n,l||(kt(k.width,k.height),pt=!0)}}(),mt=!1),pt){if(E(ll,s,Oe),E(ll,i,Ne),E(ll,t,Ie),E(ll,n,Le),E(el,s,Oe),E(el,i,Ne),E(el,t,Ie),E(el,n,Le),E(X,t,Fe),E(X,n,Ge),O.width=rl(Fe*y),O.height=rl(Ge*y),xl.forEach((({_el:e,_show:t,_size:n,_pos:i,side:o})=>{if(null!=e)if(t){let t=o%2==1;E(e,t?"left":"top",i-(3===o||0===o?n:0)),E(e,t?"width":"height",n),E(e,t?"top":"left",t?Ne:Oe),E(e,t?"height":"width",t?Le:Ie),T(e,l)}else S(e,l)})),nn=on=sn=un=an=fn=cn=hn=rn=null,dn=1,_i(!0),Oe!=je||Ne!=Ke||Ie!=Xe||Le!=Ze){An(!1);let l=Ie/Xe,e=Le/Ze;if(re&&!xt&&oe.left>=0){oe.left*=l,oe.top*=e,Cn&&A(Cn,rl(oe.left),0,Ie,Le),Hn&&A(Hn,0,rl(oe.top),Ie,Le);for(let t=0;Dt.length>t;t++){let n=Dt[t];null!=n&&(Pt[t]*=l,At[t]*=e,A(n,ul(Pt[t]),ul(At[t]),Ie,Le))}}if(ei.show&&!wt&&ei.left>=0&&ei.width>0){ei.left*=l,ei.width*=l,ei.top*=e,ei.height*=e;for(let l in ki)E(ti,l,ei[l])}je=Oe,Ke=Ne,Xe=Ie,Ze=Le}Ci("setSize"),pt=!1}Fe>0&&Ge>0&&(K.clearRect(0,0,O.width,O.height),Ci("drawClear"),Pl.forEach((l=>l())),Ci("draw")),ei.show&&wt&&(ni(ei),wt=!1),re&&xt&&(xi(null,!0,!1),xt=!1),ie.show&&ie.live&&_t&&(mi(),_t=!1),F||(F=!0,k.status=1,Ci("ready")),mn=!1,Un=!1}function Kn(l,e){let t=vl[l];if(null==t.from){if(0==Gt){let n=t.range(k,e.min,e.max,l);e.min=n[0],e.max=n[1]}if(e.min>e.max){let l=e.min;e.min=e.max,e.max=l}if(Gt>1&&null!=e.min&&null!=e.max&&1e-16>e.max-e.min)return;l==El&&2==t.distr&&Gt>0&&(e.min=L(e.min,g[0]),e.max=L(e.max,g[0]),e.min==e.max&&e.max++),Kl[l]=e,ht=!0,Jn()}}k.batch=function(l,e=!1){Un=!0,Vn=e,l(k),qn(),e&&Bn.length>0&&queueMicrotask($n)},k.redraw=(l,e)=>{mt=e||!1,!1!==l?ii(El,jl.min,jl.max):Jn()},k.setScale=Kn;let Xn=!1;const Zn=oe.drag;let Qn=Zn.x,li=Zn.y;re&&(oe.x&&(Wn=D("u-cursor-x",el)),oe.y&&(Yn=D("u-cursor-y",el)),0==jl.ori?(Cn=Wn,Hn=Yn):(Cn=Yn,Hn=Wn),Nn=oe.left,jn=oe.top);const ei=k.select=Bl({show:!0,over:!0,left:0,width:0,top:0,height:0},u.select),ti=ei.show?D("u-select",ei.over?el:ll):null;function ni(l,e){if(ei.show){for(let e in l)ei[e]=l[e],e in ki&&E(ti,e,l[e]);!1!==e&&Ci("setSelect")}}function ii(l,e,t){Kn(l,{min:e,max:t})}function oi(e,t,n,i){null!=t.focus&&function(l){if(l!=ui){let e=null==l,t=1!=Tt.alpha;pl.forEach(((n,i)=>{if(1==M||i>0){let o=e||0==i||i==l;n._focus=e?null:o,t&&function(l,e){pl[l].alpha=e,re&&null!=Dt[l]&&(Dt[l].style.opacity=e),se&&me[l]&&(me[l].style.opacity=e)}(i,o?1:Tt.alpha)}})),ui=l,t&&Jn()}}(e),null!=t.show&&pl.forEach(((n,i)=>{0>=i||e!=i&&null!=e||(n.show=t.show,function(e){if(pl[e].show)se&&T(me[e],l);else if(se&&S(me[e],l),re){let l=zt?Dt[0]:Dt[e];null!=l&&A(l,-10,-10,Ie,Le)}}(i),2==M?(ii(n.facets[0].scale,null,null),ii(n.facets[1].scale,null,null)):ii(n.scale,null,null),Jn())})),!1!==n&&Ci("setSeries",e,t),i&&Ii("setSeries",k,e,t)}let si,ri,ui;k.setSelect=ni,k.setSeries=oi,k.addBand=function(l,e){l.fill=bl(l.fill||null),l.dir=Q(l.dir,-1),Tl.splice(e=null==e?Tl.length:e,0,l)},k.setBand=function(l,e){Bl(Tl[l],e)},k.delBand=function(l){null==l?Tl.length=0:Tl.splice(l,1)};const ai={focus:!0};function fi(l,e,t){let n=vl[e];t&&(l=l/y-(1==n.ori?Ne:Oe));let i=Ie;1==n.ori&&(i=Le,l=i-l),-1==n.dir&&(l=i-l);let o=n._min,s=o+l/i*(n._max-o),r=n.distr;return 3==r?cl(10,s):4==r?((l,e=1)=>nl.sinh(l)*e)(s,n.asinh):100==r?n.bwd(s):s}function ci(l,e){E(ti,s,ei.left=l),E(ti,t,ei.width=e)}function hi(l,e){E(ti,i,ei.top=l),E(ti,n,ei.height=e)}se&&Et&&Ce(p,ce,(l=>{oe._lock||(Mt(l),null!=ui&&oi(null,ai,!0,Fi.setSeries))})),k.valToIdx=l=>L(l,g[0]),k.posToIdx=function(l,e){return L(fi(l,El,e),g[0],Lt,en)},k.posToVal=fi,k.valToPos=(l,e,t)=>0==vl[e].ori?P(l,vl[e],t?ot:Ie,t?Qe:0):W(l,vl[e],t?st:Le,t?lt:0),k.setCursor=(l,e,t)=>{Nn=l.left,jn=l.top,xi(null,e,t)};let di=0==jl.ori?ci:hi,pi=1==jl.ori?ci:hi;function mi(l,e){if(null!=l&&(l.idxs?l.idxs.forEach(((l,e)=>{te[e]=l})):(l=>void 0===l)(l.idx)||te.fill(l.idx),ie.idx=te[0]),se&&ie.live){for(let l=0;pl.length>l;l++)(l>0||1==M&&!xe)&&gi(l,te[l]);!function(){if(se&&ie.live)for(let l=2==M?1:0;pl.length>l;l++){if(0==l&&xe)continue;let e=ie.values[l],t=0;for(let n in e)ge[l][t++].firstChild.nodeValue=e[n]}}()}_t=!1,!1!==e&&Ci("setLegend")}function gi(l,e){let t,n=pl[l],i=0==l&&2==Ul?pn:g[l];xe?t=n.values(k,l,e)??we:(t=n.value(k,null==e?null:i[e],l,e),t=null==t?we:{_:t}),ie.values[l]=t}function xi(l,e,t){let n;Ln=Nn,On=jn,[Nn,jn]=oe.move(k,Nn,jn),oe.left=Nn,oe.top=jn,re&&(Cn&&A(Cn,rl(Nn),0,Ie,Le),Hn&&A(Hn,0,rl(jn),Ie,Le)),si=gl,ri=null;let i=0==jl.ori?Ie:Le,o=1==jl.ori?Ie:Le;if(0>Nn||0==Gt||Lt>en){n=oe.idx=null;for(let l=0;pl.length>l;l++){let e=Dt[l];null!=e&&A(e,-10,-10,Ie,Le)}Et&&oi(null,ai,!0,null==l&&Fi.setSeries),ie.live&&(te.fill(n),_t=!0)}else{let l,e,t;1==M&&(l=0==jl.ori?Nn:jn,e=fi(l,El),n=oe.idx=L(e,g[0],Lt,en),t=$l(g[0][n],jl,i,0));let s=-10,r=-10,u=0,a=0,f=!0,c="",h="";for(let l=2==M?1:0;pl.length>l;l++){let d=pl[l],p=te[l],m=null==p?null:1==M?g[l][p]:g[l][1][p],x=oe.dataIdx(k,l,n,e),w=null==x?null:1==M?g[l][x]:g[l][1][x];if(_t=_t||w!=m||x!=p,te[l]=x,l>0&&d.show){let e=null==x?-10:x==n?t:$l(1==M?g[0][x]:g[l][0][x],jl,i,0),p=null==w?-10:ql(w,1==M?vl[d.scale]:vl[d.facets[1].scale],o,0);if(Et&&null!=w){let e=1==jl.ori?Nn:jn,t=ol(Tt.dist(k,l,x,p,e));if(si>t){let n=Tt.bias;if(0!=n){let i=fi(e,d.scale),o=0>i?-1:1;o!=(0>w?-1:1)||(1==o?1==n?i>w:w>i:1==n?w>i:i>w)||(si=t,ri=l)}else si=t,ri=l}}if(_t||zt){let t,n;0==jl.ori?(t=e,n=p):(t=p,n=e);let i,o,d,m,g,x,w=!0,_=St.bbox;if(null!=_){w=!1;let e=_(k,l);d=e.left,m=e.top,i=e.width,o=e.height}else d=t,m=n,i=o=St.size(k,l);if(x=St.fill(k,l),g=St.stroke(k,l),zt)l!=ri||si>Tt.prox||(s=d,r=m,u=i,a=o,f=w,c=x,h=g);else{let e=Dt[l];null!=e&&(Pt[l]=d,At[l]=m,H(e,i,o,w),Y(e,x,g),A(e,ul(d),ul(m),Ie,Le))}}}}if(zt){let l=Tt.prox;if(_t||(null==ui?l>=si:si>l||ri!=ui)){let l=Dt[0];null!=l&&(Pt[0]=s,At[0]=r,H(l,u,a,f),Y(l,c,h),A(l,ul(s),ul(r),Ie,Le))}}}if(ei.show&&Xn)if(null!=l){let[e,t]=Fi.scales,[n,s]=Fi.match,[r,u]=l.cursor.sync.scales,a=l.cursor.drag;if(Qn=a._x,li=a._y,Qn||li){let a,f,c,h,d,{left:p,top:m,width:g,height:x}=l.select,w=l.scales[r].ori,_=l.posToVal,b=null!=e&&n(e,r),v=null!=t&&s(t,u);b&&Qn?(0==w?(a=p,f=g):(a=m,f=x),c=vl[e],h=$l(_(a,r),c,i,0),d=$l(_(a+f,r),c,i,0),di(al(h,d),ol(d-h))):di(0,i),v&&li?(1==w?(a=p,f=g):(a=m,f=x),c=vl[t],h=ql(_(a,u),c,o,0),d=ql(_(a+f,u),c,o,0),pi(al(h,d),ol(d-h))):pi(0,o)}else yi()}else{let l=ol(Ln-Fn),e=ol(On-Rn);if(1==jl.ori){let t=l;l=e,e=t}Qn=Zn.x&&l>=Zn.dist,li=Zn.y&&e>=Zn.dist;let t,n,s=Zn.uni;null!=s?Qn&&li&&(Qn=l>=s,li=e>=s,Qn||li||(e>l?li=!0:Qn=!0)):Zn.x&&Zn.y&&(Qn||li)&&(Qn=li=!0),Qn&&(0==jl.ori?(t=Gn,n=Nn):(t=In,n=jn),di(al(t,n),ol(n-t)),li||pi(0,o)),li&&(1==jl.ori?(t=Gn,n=Nn):(t=In,n=jn),pi(al(t,n),ol(n-t)),Qn||di(0,i)),Qn||li||(di(0,0),pi(0,0))}if(Zn._x=Qn,Zn._y=li,null==l){if(t){if(null!=Ri){let[l,e]=Fi.scales;Fi.values[0]=null!=l?fi(0==jl.ori?Nn:jn,l):null,Fi.values[1]=null!=e?fi(1==jl.ori?Nn:jn,e):null}Ii(f,k,Nn,jn,Ie,Le,n)}if(Et){let l=t&&Fi.setSeries,e=Tt.prox;null==ui?si>e||oi(ri,ai,!0,l):si>e?oi(null,ai,!0,l):ri!=ui&&oi(ri,ai,!0,l)}}_t&&(ie.idx=n,mi()),!1!==e&&Ci("setCursor")}k.setLegend=mi;let wi=null;function _i(l=!1){l?wi=null:(wi=el.getBoundingClientRect(),Ci("syncRect",wi))}function bi(l,e,t,n,i,o){oe._lock||Xn&&null!=l&&0==l.movementX&&0==l.movementY||(vi(l,e,t,n,i,o,0,!1,null!=l),null!=l?xi(null,!0,!0):xi(e,!0,!1))}function vi(l,e,t,n,i,o,s,r,u){if(null==wi&&_i(!1),Mt(l),null!=l)t=l.clientX-wi.left,n=l.clientY-wi.top;else{if(0>t||0>n)return Nn=-10,void(jn=-10);let[l,s]=Fi.scales,r=e.cursor.sync,[u,a]=r.values,[f,c]=r.scales,[h,d]=Fi.match,p=e.axes[0].side%2==1,m=0==jl.ori?Ie:Le,g=1==jl.ori?Ie:Le,x=p?o:i,w=p?i:o,_=p?n:t,b=p?t:n;if(t=null!=f?h(l,f)?C(u,vl[l],m,0):-10:m*(_/x),n=null!=c?d(s,c)?C(a,vl[s],g,0):-10:g*(b/w),1==jl.ori){let l=t;t=n,n=l}}!u||null!=e&&e.cursor.event.type!=f||(t>1&&Ie-1>t||(t=zl(t,Ie)),n>1&&Le-1>n||(n=zl(n,Le))),r?(Fn=t,Rn=n,[Gn,In]=oe.move(k,t,n)):(Nn=t,jn=n)}Object.defineProperty(k,"rect",{get:()=>(null==wi&&_i(!1),wi)});const ki={width:0,height:0,left:0,top:0};function yi(){ni(ki,!1)}let Mi,Si,Ti,Ei;function zi(l,e,t,n,i,o){Xn=!0,Qn=li=Zn._x=Zn._y=!1,vi(l,e,t,n,i,o,0,!0,!1),null!=l&&(Ce(h,b,Di,!1),Ii(c,k,Gn,In,Ie,Le,null));let{left:s,top:r,width:u,height:a}=ei;Mi=s,Si=r,Ti=u,Ei=a}function Di(l,e,t,n,i,o){Xn=Zn._x=Zn._y=!1,vi(l,e,t,n,i,o,0,!1,!0);let{left:s,top:r,width:u,height:a}=ei,f=u>0||a>0,c=Mi!=s||Si!=r||Ti!=u||Ei!=a;if(f&&c&&ni(ei),Zn.setScale&&f&&c){let l=s,e=u,t=r,n=a;if(1==jl.ori&&(l=r,e=a,t=s,n=u),Qn&&ii(El,fi(l,El),fi(l+e,El)),li)for(let l in vl){let e=vl[l];l!=El&&null==e.from&&e.min!=gl&&ii(l,fi(t+n,l),fi(t,l))}yi()}else oe.lock&&(oe._lock=!oe._lock,xi(e,!0,null!=l));null!=l&&(He(h,b),Ii(h,k,Nn,jn,Ie,Le,null))}function Pi(l){oe._lock||(Mt(l),xn(),yi(),null!=l&&Ii(m,k,Nn,jn,Ie,Le,null))}function Ai(){xl.forEach(ln),vt(k.width,k.height,!0)}G(x,v,Ai);const Wi={};Wi.mousedown=zi,Wi.mousemove=bi,Wi.mouseup=Di,Wi.dblclick=Pi,Wi.setSeries=(l,e,t,n)=>{-1!=(t=(0,Fi.match[2])(k,e,t))&&oi(t,n,!0,!1)},re&&(Ce(c,el,zi),Ce(f,el,bi),Ce(d,el,(l=>{Mt(l),_i(!1)})),Ce(p,el,(function(l){if(oe._lock)return;Mt(l);let e=Xn;if(Xn){let l,e,t=!0,n=!0,i=10;0==jl.ori?(l=Qn,e=li):(l=li,e=Qn),l&&e&&(t=i>=Nn||Nn>=Ie-i,n=i>=jn||jn>=Le-i),l&&t&&(Nn=Gn>Nn?0:Ie),e&&n&&(jn=In>jn?0:Le),xi(null,!0,!0),Xn=!1}Nn=-10,jn=-10,te.fill(null),xi(null,!0,!0),e&&(Xn=e)})),Ce(m,el,Pi),It.add(k),k.syncRect=_i);const Yi=k.hooks=u.hooks||{};function Ci(l,e,t){Vn?Bn.push([l,e,t]):l in Yi&&Yi[l].forEach((l=>{l.call(null,k,e,t)}))}(u.plugins||[]).forEach((l=>{for(let e in l.hooks)Yi[e]=(Yi[e]||[]).concat(l.hooks[e])}));const Hi=(l,e,t)=>t,Fi=Bl({key:null,setSeries:!1,filters:{pub:Ml,sub:Ml},scales:[El,pl[1]?pl[1].scale:null],match:[Sl,Sl,Hi],values:[null,null]},oe.sync);2==Fi.match.length&&Fi.match.push(Hi),oe.sync=Fi;const Ri=Fi.key,Gi=dt(Ri);function Ii(l,e,t,n,i,o,s){Fi.filters.pub(l,e,t,n,i,o,s)&&Gi.pub(l,e,t,n,i,o,s)}function Li(){Ci("init",u,g),gn(g||u.data,!1),Kl[El]?Kn(El,Kl[El]):xn(),wt=ei.show&&(ei.width>0||ei.height>0),xt=_t=!0,vt(u.width,u.height)}return Gi.sub(k),k.pub=function(l,e,t,n,i,o,s){Fi.filters.sub(l,e,t,n,i,o,s)&&Wi[l](null,e,t,n,i,o,s)},k.destroy=function(){Gi.unsub(k),It.delete(k),Pe.clear(),I(x,v,Ai),R.remove(),ce?.remove(),Ci("destroy")},pl.forEach(Yt),xl.forEach((function(l,e){if(l._show=l.show,l.show){let t=vl[l.scale];null==t&&(l.scale=l.side%2?pl[1].scale:El,t=vl[l.scale]);let n=t.time;l.size=bl(l.size),l.space=bl(l.space),l.rotate=bl(l.rotate),Gl(l.incrs)&&l.incrs.forEach((l=>{!Wl.has(l)&&Wl.set(l,Yl(l))})),l.incrs=bl(l.incrs||(2==t.distr?ae:n?1==hl?ke:Se:fe)),l.splits=bl(l.splits||(n&&1==t.distr?Ql:3==t.distr?Je:4==t.distr?qe:$e)),l.stroke=bl(l.stroke),l.grid.stroke=bl(l.grid.stroke),l.ticks.stroke=bl(l.ticks.stroke),l.border.stroke=bl(l.border.stroke);let i=l.values;l.values=Gl(i)&&!Gl(i[0])?bl(i):n?Gl(i)?De(Xl,ze(i,Zl)):Ll(i)?function(l,e){let t=ne(e);return(e,n)=>n.map((e=>t(l(e))))}(Xl,i):i||le:i||Be,l.filter=bl(l.filter||(3>t.distr||10!=t.log?3==t.distr&&2==t.log?tt:kl:et)),l.font=Qt(l.font),l.labelFont=Qt(l.labelFont),l._size=l.size(k,null,e,0),l._space=l._rotate=l._incrs=l._found=l._splits=l._values=null,l._size>0&&(Ct[e]=!0,l._el=D("u-axis",X))}})),_?_ instanceof HTMLElement?(_.appendChild(R),Li()):_(k,Li):Li(),k}en.assign=Bl,en.fmtNum=tl,en.rangeNum=Z,en.rangeLog=B,en.rangeAsinh=$,en.orient=pt,en.pxRatio=y,en.join=function(l,e){if(function(l){let e=l[0][0],t=e.length;for(let n=1;l.length>n;n++){let i=l[n][0];if(i.length!=t)return!1;if(i!=e)for(let l=0;t>l;l++)if(i[l]!=e[l])return!1}return!0}(l)){let e=l[0].slice();for(let t=1;l.length>t;t++)e.push(...l[t].slice(1));return function(l,e=100){const t=l.length;if(1>=t)return!0;let n=0,i=t-1;for(;i>=n&&null==l[n];)n++;for(;i>=n&&null==l[i];)i--;if(n>=i)return!0;const o=fl(1,sl((i-n+1)/e));for(let e=l[n],t=n+o;i>=t;t+=o){const n=l[t];if(null!=n){if(e>=n)return!1;e=n}}return!0}(e[0])||(e=function(l){let e=l[0],t=e.length,n=Array(t);for(let l=0;n.length>l;l++)n[l]=l;n.sort(((l,t)=>e[l]-e[t]));let i=[];for(let e=0;l.length>e;e++){let o=l[e],s=Array(t);for(let l=0;t>l;l++)s[l]=o[n[l]];i.push(s)}return i}(e)),e}let t=new Set;for(let e=0;l.length>e;e++){let n=l[e][0],i=n.length;for(let l=0;i>l;l++)t.add(n[l])}let n=[Array.from(t).sort(((l,e)=>l-e))],i=n[0].length,o=new Map;for(let l=0;i>l;l++)o.set(n[0][l],l);for(let t=0;l.length>t;t++){let s=l[t],r=s[0];for(let l=1;s.length>l;l++){let u=s[l],a=Array(i).fill(void 0),f=e?e[t][l]:1,c=[];for(let l=0;u.length>l;l++){let e=u[l],t=o.get(r[l]);null===e?0!=f&&(a[t]=e,2==f&&c.push(t)):a[t]=e}$l(a,c,i),n.push(a)}}return n},en.fmtDate=ne,en.tzDate=function(l,e){let t;return"UTC"==e||"Etc/UTC"==e?t=new Date(+l+6e4*l.getTimezoneOffset()):e==ie?t=l:(t=new Date(l.toLocaleString("en-US",{timeZone:e})),t.setMilliseconds(l.getMilliseconds())),t},en.sync=dt;{en.addGap=function(l,e,t){let n=l[l.length-1];n&&n[0]==e?n[1]=t:l.push([e,t])},en.clipGaps=wt;let l=en.paths={points:Wt};l.linear=Ft,l.stepped=function(l){const e=Q(l.align,1),t=Q(l.ascDesc,!1),n=Q(l.alignGaps,0),i=Q(l.extend,!1);return(l,o,s,r)=>pt(l,o,((u,a,f,c,h,d,p,m,g,x,w)=>{[s,r]=U(f,s,r);let _=u.pxRound,{left:b,width:v}=l.bbox,k=l=>_(d(l,c,x,m)),M=l=>_(p(l,h,w,g)),S=0==c.ori?Mt:St;const T={stroke:new Path2D,fill:null,clip:null,band:null,gaps:null,flags:1},E=T.stroke,z=c.dir*(0==c.ori?1:-1);let D=M(f[1==z?s:r]),P=k(a[1==z?s:r]),A=P,W=P;i&&-1==e&&(W=b,S(E,W,D)),S(E,P,D);for(let l=1==z?s:r;l>=s&&r>=l;l+=z){let t=f[l];if(null==t)continue;let n=k(a[l]),i=M(t);1==e?S(E,n,D):S(E,A,i),S(E,n,i),D=i,A=n}let Y=A;i&&1==e&&(Y=b+v,S(E,Y,D));let[C,H]=mt(l,o);if(null!=u.fill||0!=C){let e=T.fill=new Path2D(E),t=M(u.fillTo(l,o,u.min,u.max,C));S(e,Y,t),S(e,W,t)}if(!u.spanGaps){let i=[];i.push(..._t(a,f,s,r,z,k,n));let h=u.width*y/2,d=t||1==e?h:-h,p=t||-1==e?-h:h;i.forEach((l=>{l[0]+=d,l[1]+=p})),T.gaps=i=u.gaps(l,o,s,r,i),T.clip=wt(i,c.ori,m,g,x,w)}return 0!=H&&(T.band=2==H?[xt(l,o,s,r,E,-1),xt(l,o,s,r,E,1)]:xt(l,o,s,r,E,H)),T}))},l.bars=function(l){const e=Q((l=l||Hl).size,[.6,gl,1]),t=l.align||0,n=l.gap||0;let i=l.radius;i=null==i?[0,0]:"number"==typeof i?[i,0]:i;const o=bl(i),s=1-e[0],r=Q(e[1],gl),u=Q(e[2],1),a=Q(l.disp,Hl),f=Q(l.each,(()=>{})),{fill:c,stroke:h}=a;return(l,e,i,d)=>pt(l,e,((p,m,g,x,w,_,b,v,k,M,S)=>{let T,E,z=p.pxRound,D=t,P=n*y,A=r*y,W=u*y;0==x.ori?[T,E]=o(l,e):[E,T]=o(l,e);const Y=x.dir*(0==x.ori?1:-1);let C,H,F,R=0==x.ori?Tt:Et,G=0==x.ori?f:(l,e,t,n,i,o,s)=>{f(l,e,t,i,n,s,o)},I=Q(l.bands,Fl).find((l=>l.series[0]==e)),L=p.fillTo(l,e,p.min,p.max,null!=I?I.dir:0),O=z(b(L,w,S,k)),N=M,j=z(p.width*y),U=!1,V=null,B=null,$=null,J=null;null==c||0!=j&&null==h||(U=!0,V=c.values(l,e,i,d),B=new Map,new Set(V).forEach((l=>{null!=l&&B.set(l,new Path2D)})),j>0&&($=h.values(l,e,i,d),J=new Map,new Set($).forEach((l=>{null!=l&&J.set(l,new Path2D)}))));let{x0:q,size:K}=a;if(null!=q&&null!=K){D=1,m=q.values(l,e,i,d),2==q.unit&&(m=m.map((e=>l.posToVal(v+e*M,x.key,!0))));let t=K.values(l,e,i,d);H=2==K.unit?t[0]*M:_(t[0],x,M,v)-_(0,x,M,v),N=Rt(m,g,_,x,M,v,N),F=N-H+P}else N=Rt(m,g,_,x,M,v,N),F=N*s+P,H=N-F;1>F&&(F=0),H/2>j||(j=0),5>F&&(z=vl);let X=F>0;H=z(wl(N-F-(X?j:0),W,A)),C=(0==D?H/2:D==Y?0:H)-D*Y*((0==D?P/2:0)+(X?j/2:0));const Z={stroke:null,fill:null,clip:null,band:null,gaps:null,flags:0},ll=U?null:new Path2D;let el=null;if(null!=I)el=l.data[I.series[1]];else{let{y0:t,y1:n}=a;null!=t&&null!=n&&(g=n.values(l,e,i,d),el=t.values(l,e,i,d))}let tl=T*H,nl=E*H;for(let t=1==Y?i:d;t>=i&&d>=t;t+=Y){let n=g[t];if(null==n)continue;if(null!=el){let l=el[t]??0;if(n-l==0)continue;O=b(l,w,S,k)}let i=_(2!=x.distr||null!=a?m[t]:t,x,M,v),o=b(Q(n,L),w,S,k),s=z(i-C),r=z(fl(o,O)),u=z(al(o,O)),f=r-u;if(null!=n){let i=0>n?nl:tl,o=0>n?tl:nl;U?(j>0&&null!=$[t]&&R(J.get($[t]),s,u+sl(j/2),H,fl(0,f-j),i,o),null!=V[t]&&R(B.get(V[t]),s,u+sl(j/2),H,fl(0,f-j),i,o)):R(ll,s,u+sl(j/2),H,fl(0,f-j),i,o),G(l,e,t,s-j/2,u,H+j,f)}}return j>0?Z.stroke=U?J:ll:U||(Z._fill=0==p.width?p._fill:p._stroke??p._fill,Z.width=0),Z.fill=U?B:ll,Z}))},l.spline=function(l){return function(l,e){const t=Q(e?.alignGaps,0);return(e,n,i,o)=>pt(e,n,((s,r,u,a,f,c,h,d,p,m,g)=>{[i,o]=U(u,i,o);let x,w,_,b=s.pxRound,v=l=>b(c(l,a,m,d)),k=l=>b(h(l,f,g,p));0==a.ori?(x=kt,_=Mt,w=Pt):(x=yt,_=St,w=At);const y=a.dir*(0==a.ori?1:-1);let M=v(r[1==y?i:o]),S=M,T=[],E=[];for(let l=1==y?i:o;l>=i&&o>=l;l+=y)if(null!=u[l]){let e=v(r[l]);T.push(S=e),E.push(k(u[l]))}const z={stroke:l(T,E,x,_,w,b),fill:null,clip:null,band:null,gaps:null,flags:1},D=z.stroke;let[P,A]=mt(e,n);if(null!=s.fill||0!=P){let l=z.fill=new Path2D(D),t=k(s.fillTo(e,n,s.min,s.max,P));_(l,S,t),_(l,M,t)}if(!s.spanGaps){let l=[];l.push(..._t(r,u,i,o,y,v,t)),z.gaps=l=s.gaps(e,n,i,o,l),z.clip=wt(l,a.ori,d,p,m,g)}return 0!=A&&(z.band=2==A?[xt(e,n,i,o,D,-1),xt(e,n,i,o,D,1)]:xt(e,n,i,o,D,A)),z}))}(Gt,l)}}return en}();

(() => {
"use strict";
const $stream_app_api_dashboard_elements = (() => {
// Makes elements of the page. No text is parsed as HTML, so names of streams and keys cannot inject any.

const at = (id) => document.getElementById(id);

// Return a new element. Args: properties; names with a dash, "role" and "for" are set as attributes; then the
// children, elements or texts. Example: make("p", { className: "muted" }, "text", another).
function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role" || key === "for") element.setAttribute(key, value);
    else if (key === "dataset") Object.assign(element.dataset, value);
    else element[key] = value;
  }
  element.append(...children);
  return element;
}

// Return a button "?" and the text that it shows and hides. The button is there only with a text. Args: label, what the text is about.
function explained(label, ...children) {
  const box = make("div", { className: "help", hidden: true }, ...children);
  const button = make("button", { type: "button", className: "ask", "aria-label": label, "aria-expanded": "false" }, "?");
  const show = (open) => {
    box.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
  };
  button.addEventListener("click", () => show(box.hidden));
  const check = () => { button.hidden = !box.textContent.trim(); };
  check();
  return { button, box, check };
}

const bold = (text) => make("b", {}, text);

// Show a number in large digits. A long one is written smaller.
function showNumber(host, text) {
  host.textContent = text;
  host.style.setProperty("--letters", String(text.length));
}

// Return the words for an interval. Args: its ends, as texts.
const inBetween = ([lower, upper]) => [bold(lower), " to ", bold(upper)];

// Show names and values as a list of definitions.
function facts(host, entries) {
  host.replaceChildren(...entries.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

// Keep the box that a <details> opens within the window, also if the window is resized. The style sheet places the box.
function keepInWindow(details, box) {
  const place = () => {
    box.style.translate = "";
    const { left, right } = box.getBoundingClientRect();
    const [first, last] = [8, document.documentElement.clientWidth - 8];
    const shift = Math.max(Math.min(last - right, 0), first - left);
    if (details.open && shift) box.style.translate = `${shift}px`;
  };
  details.addEventListener("toggle", place);
  window.addEventListener("resize", place);
}

// Set an element's text if it differs. Setting an equal text would make screen readers read it again.
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
return { at, make, explained, bold, showNumber, inBetween, facts, keepInWindow, say };
})();

const $stream_app_api_dashboard_frame = (() => {
// Parts that all pages have: the button for the theme, and the state of the connection.

const { at, make, say } = $stream_app_api_dashboard_elements;

const SAID = { live: "Connected", connecting: "Reconnecting", lost: "Disconnected" };

const LOST_MS = 5000; // a connection that is back sooner is not worth a word
let losing = null;
let wasLive = false;

function setConnection(state) {
  at("connection").dataset.state = state;
  say(at("connection"), SAID[state]);
  if (state === "live") {
    wasLive = true;
    clearTimeout(losing);
    losing = null;
    document.getElementById("offline")?.remove();
  } else if (wasLive) losing ??= setTimeout(sayOffline, LOST_MS);
}

function sayOffline() {
  const words = "This page has lost its connection. It shows what it received before, and connects again by itself.";
  document.querySelector("header.bar")?.after(make("p", { className: "alarm offline", id: "offline", role: "status" }, words));
}

// Return whether the page hears of releases.
const isConnected = () => at("connection").dataset.state === "live";

const isDark = () => document.documentElement.dataset.theme === "dark"; // theme.js sets it

// Switch the theme when its button is clicked. Then call ``changed``, because charts read the theme's colours.
function watchTheme(changed) {
  const tell = () => {
    at("theme")?.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
    changed();
  };
  at("theme")?.addEventListener("click", () => { // a page in a frame has no button
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("theme", next);
    tell();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  tell();
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
return { setConnection, isConnected, watchTheme, colour };
})();

const $stream_app_api_dashboard_clock = (() => {
// The clock of a time zone: converts between instants and times on the wall, both in seconds since 1970.

const PARTS = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" };

class Clock {
  constructor(zone) {
    this.zone = zone;
    this.parts = new Intl.DateTimeFormat("en-US", { timeZone: zone, hourCycle: "h23", ...PARTS });
  }

  // Return by how many seconds the time on the wall is ahead of UTC.
  offset(instant) {
    if (this.zone === "UTC") return 0;
    const said = Object.fromEntries(this.parts.formatToParts(instant * 1000).map(({ type, value }) => [type, Number(value)]));
    const whole = Math.floor(instant);
    return Date.UTC(said.year, said.month - 1, said.day, said.hour, said.minute, said.second) / 1000 - whole;
  }

  // Return the instant of a time on the wall. If the clocks show it twice, this is the first time. If the clocks
  // skip it, this is the instant of the skip. The clocks change at most once within a day before and a day after.
  at(wall) {
    const [before, after] = [this.offset(wall - 86400), this.offset(wall + 86400)];
    return this.offset(wall - Math.max(before, after)) === after ? wall - after : wall - before;
  }

  // Return whether another instant nearby has the same time on the wall, because the clocks are put back.
  showsTwice(instant) {
    const wall = instant + this.offset(instant);
    return [1800, 3600].some((step) => [instant - step, instant + step].some((other) => other + this.offset(other) === wall));
  }
}
return { Clock };
})();

const $stream_app_api_dashboard_bins = (() => {
// Converts between instants and bins. A bin has the same number here as in the service. An instant is in
// seconds since 1970.

const { Clock } = $stream_app_api_dashboard_clock;

const DAY = 86400;
const WEEK = 7 * DAY;

// Return the bins of a stream: bins of equal length, or the calendar days of a time zone.
// Args: the answer of /v1/streams/{s}.
const binsOf = ({ bin_seconds: length, timezone }) => (timezone === null ? new FixedBins(length) : new CalendarDays(timezone));

class FixedBins {
  constructor(length) {
    this.length = length;
  }

  start(bin) {
    return Math.round(bin * this.length * 1e6) / 1e6;
  }

  // Return the bin that contains an instant.
  of(instant) {
    return Math.floor(instant / this.length + 1e-6); // the start of a bin belongs to that bin; the term absorbs rounding
  }

  // Return the number of bins in a week. Return null if a week is not a whole number of bins.
  get week() {
    return WEEK % this.length === 0 ? WEEK / this.length : null;
  }
}

class CalendarDays {
  constructor(zone) {
    this.length = DAY; // a day is an hour longer or shorter if the clocks change on it
    this.week = 7;
    this.clock = new Clock(zone);
    this.starts = new Map();
  }

  // Return the instant at which a day starts, usually midnight. If the clocks show midnight twice, this is the
  // first time. If the clocks skip midnight, this is the instant of the skip.
  start(day) {
    if (!this.starts.has(day)) this.starts.set(day, this.clock.at(day * DAY));
    return this.starts.get(day);
  }

  of(instant) {
    const near = Math.floor(instant / DAY);
    return [near + 1, near, near - 1].find((day) => this.start(day) <= instant);
  }
}
return { binsOf, CalendarDays };
})();

const $stream_app_api_dashboard_time_axis = (() => {
// uPlot's options for axes of time. Ticks are at round times of UTC, or at the starts of calendar days.

const DAY = 86400;
const MONTH = 30 * DAY, YEAR = 365 * DAY; // approximate lengths, for choosing the distance of ticks

// Formats of labels, in uPlot's columns: the least distance of ticks in seconds, the format, and the text that is
// added on a second line when the year or the day changes.
const DAY_CHANGES = [null, "\n{D} {MMM}", null, null, null, 1];
const TIME_LABELS = [
  [31536000, "{YYYY}", null, null, null, null, null, null, 1],
  [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", ...DAY_CHANGES],
  [1, "{HH}:{mm}:{ss}", "\n{D} {MMM} {YYYY}", ...DAY_CHANGES],
];

const utcAxis = { values: TIME_LABELS };

const DISTANCES = [
  ...[1, 2, 3, 4, 7, 14].map((days) => days * DAY),
  ...[1, 2, 3, 6].map((months) => months * MONTH),
  ...[1, 2, 5, 10, 20, 50, 100].map((years) => years * YEAR),
];

// Return an axis with ticks at the starts of days. If that is too many ticks, they are at Mondays, or at the first
// days of months or years. Args: bins, which are calendar days; date(day), returns a text such as "29 Mar 2013".
function dayAxis(bins, date) {
  return {
    incrs: DISTANCES,
    splits: (u, axis, from, to, distance) => {
      const first = bins.of(from);
      return Array.from({ length: bins.of(to) - first + 1 }, (_, i) => first + i)
        .filter((day) => bins.start(day) >= from && bins.start(day) < bins.start(day + 1) && isRound(day, distance))
        .map((day) => bins.start(day));
    },
    values: (u, ticks, axis, space, distance) => ticks.map((tick, i) => {
      const [day, month, year] = date(bins.of(tick)).split(" ");
      if (distance >= YEAR) return year;
      const changed = i === 0 || date(bins.of(ticks[i - 1])).split(" ")[2] !== year;
      return (distance >= MONTH ? month : `${day} ${month}`) + (changed ? `\n${year}` : "");
    }),
  };
}

function isRound(day, distance) {
  if (distance < MONTH) return (day + 3) % Math.round(distance / DAY) === 0; // day 4 since 1970-01-01 was a Monday
  const at = new Date(day * DAY * 1000);
  const months = distance < YEAR ? Math.round(distance / MONTH) : 12 * Math.round(distance / YEAR);
  return at.getUTCDate() === 1 && (at.getUTCFullYear() * 12 + at.getUTCMonth()) % months === 0;
}
return { utcAxis, dayAxis };
})();

const $stream_app_api_dashboard_times = (() => {
// Writes instants as text: by the clock of the reader's time zone, or as days of the stream's own time zone if its
// bins are calendar days.
//
// Instants are seconds since 1970. All text about time, the axes of charts and the date form use the ``times`` of
// the page's stream. Addresses, CSV and JSON files have instants in UTC (RFC 3339).

const { binsOf, CalendarDays } = $stream_app_api_dashboard_bins;
const { Clock } = $stream_app_api_dashboard_clock;
const { dayAxis, utcAxis } = $stream_app_api_dashboard_time_axis;

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const DATE = { day: "numeric", month: "short", year: "numeric" };
const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const dates = writer({ ...DATE, timeZone: "UTC" });

// Return a writer of dates whose months have three letters, as in the service's texts and on the axes: some browsers say "Sept".
function writer(options) {
  const form = new Intl.DateTimeFormat("en-GB", options);
  return { format: (at) => form.format(at).replace("Sept", "Sep") };
}

const utc = (at) => new Date(at * 1000).toISOString();
const seconds = (rfc3339) => Date.parse(rfc3339) / 1000;

// Return the day of an instant in UTC, as on "Retired on 23 Nov 2026".
const day = (rfc3339) => dates.format(new Date(rfc3339));

// Return the object that writes a stream's instants. Streams with equal bins share one such object.
// Args: the answer of /v1/streams/{s}; zone, the reader's time zone.
function timesOf(detail, zone = "UTC") {
  const name = `${detail.timezone ?? zone} ${detail.bin_seconds}`;
  if (!known.has(name)) known.set(name, detail.timezone === null ? new ClockTimes(detail, zone) : new DayTimes(detail));
  return known.get(name);
}
const known = new Map();

class ClockTimes {
  constructor(detail, zone) {
    this.bins = binsOf(detail);
    this.binSeconds = detail.bin_seconds;
    this.oneBin = detail.bin; // "1 hour", "15 minutes"
    this.bin = detail.bin.replace(/^1 /, "");
    this.per = this.bin;
    this.meaning = "";
    this.lengthNote = "";
    this.zone = zone;
    this.scale = zone;
    this.clockZone = zone === "UTC" ? "Etc/UTC" : zone; // uPlot knows UTC by this name
    this.axis = utcAxis;
    this.form = { type: "datetime-local", from: `From (${zone})`, to: `To (${zone})` };
    this.clock = new Clock(zone);
    this.days = zone === "UTC" ? null : new CalendarDays(zone); // the days of charts, if midnights are edges of bins
    this.writers = new Map();
  }

  // Return an instant as text. Args: spanSeconds, the length of the span that starts or ends there. For whole days
  // the text is the date only.
  #instant(at, spanSeconds = HOUR) {
    const { clock } = this;
    const wall = at + clock.offset(at);
    const dated = spanSeconds !== null && spanSeconds % DAY === 0 && wall % DAY === 0;
    const text = this.#writer(dated ? "date" : spanSeconds !== null && spanSeconds < MINUTE ? "second" : "minute").format(new Date(at * 1000));
    return this.days && !dated && clock.showsTwice(at) ? `${text} (${offsetWords(clock.offset(at))})` : text;
  }

  #writer(kind) {
    if (!this.writers.has(kind)) {
      const options = { ...DATE, timeZone: this.zone, ...(kind === "date" ? {} : CLOCK), ...(kind === "second" ? { second: "2-digit" } : {}) };
      this.writers.set(kind, writer(options));
    }
    return this.writers.get(kind);
  }

  // Three texts: the instant at which a span starts, the instant at which it ends, and the whole span.
  // Args: the length of the span in seconds.
  from(at, spanSeconds = this.binSeconds) {
    return this.#instant(at, spanSeconds);
  }

  until(at, spanSeconds = this.binSeconds) {
    return this.#instant(at, spanSeconds);
  }

  // Return the text of an instant at which something happened.
  moment(at, spanSeconds = this.binSeconds) {
    return this.#instant(at, spanSeconds);
  }

  // Whole days are written as their dates, "10–20 Sep 2026". A range within one day names the day only once, and
  // its midnight is 24:00.
  period(start, end, spanSeconds = this.binSeconds) {
    const [first, next] = [start, end].map((at) => (at + this.clock.offset(at)) / DAY);
    if (first < next && Number.isInteger(first) && Number.isInteger(next)) return days(first, next - 1);
    const [from, to] = [start, end].map((at) => this.#instant(at, spanSeconds < MINUTE ? spanSeconds : HOUR)); // with the time of day
    const day = from.split(", ")[0];
    if (to.startsWith(`${day}, `)) return `${from}–${to.slice(day.length + 2)}`;
    const isMidnight = Number.isInteger(next) && to.includes(", ") && date(next - 1) === day;
    return isMidnight ? `${from}–24${to.split(", ")[1].slice(2)}` : `${from} – ${to}`;
  }

  // Add the name of the time zone: on the stream's page, and in texts that leave the page, such as files.
  onPage(text) {
    return `${text} ${this.zone}`;
  }

  alone(text) {
    return `${text} ${this.zone}`;
  }

  // Return labels for slices of time: pairs [index of the slice, text].
  sliceLabels(starts) {
    const days = starts.at(-1) - starts[0] > 2 * DAY;
    const isMidnight = (at) => (at + this.clock.offset(at)) % DAY === 0;
    return starts.map((from, i) => [i, days ? withoutYear(this.#writer("date").format(new Date(from * 1000))) : this.#instant(from).split(", ")[1]])
      .filter(([i]) => !days || isMidnight(starts[i]) || starts[i + 1] - starts[i] >= DAY);
  }

  // Two conversions: from a range to the fields of the date form, and back.
  toForm({ start, end }) {
    return [start, end].map((at) => new Date((at + this.clock.offset(at)) * 1000).toISOString().slice(0, 19));
  }

  fromForm(from, to) {
    const [start, end] = [from, to].map((wall) => this.clock.at(seconds(`${wall}Z`)));
    return { start, end };
  }

  // Return whether every day of the time zone that begins within a range begins at the edge of a bin.
  // Args: edgeBefore(at), returns the last edge of a bin before or at an instant.
  hasWholeDays({ start, end }, edgeBefore) {
    if (!this.days) return false;
    const [first, last] = [this.days.of(start), this.days.of(end)];
    for (let day = first; day <= last; day += 1) {
      const midnight = this.days.start(day);
      if (midnight >= start && edgeBefore(midnight) !== midnight) return false;
    }
    return true;
  }
}

function offsetWords(offset) {
  const minutes = Math.abs(offset) / 60;
  const clock = `${Math.floor(minutes / 60)}${minutes % 60 ? `:${minutes % 60}` : ""}`;
  return `UTC${offset < 0 ? "−" : "+"}${clock}`;
}

// Writes instants as days. A range of days names its first and its last day, so the end of a range is written as
// the day before it.
class DayTimes {
  constructor(detail) {
    this.bins = binsOf(detail);
    this.zone = detail.timezone;
    this.oneBin = "1 day";
    this.bin = "day";
    this.per = `day of ${this.zone}`;
    this.meaning = "A range includes its first and its last day.";
    this.lengthNote = ` A day is a calendar day of ${this.zone}, 23 to 25 hours.`;
    this.scale = `whole days of ${this.zone}`;
    this.clockZone = "Etc/UTC";
    this.axis = dayAxis(this.bins, date);
    this.form = { type: "date", from: "First day", to: "Last day" };
    this.clock = writer({ ...DATE, ...CLOCK, timeZone: this.zone });
  }

  from(at) {
    return this.#isEdge(at) ? date(this.bins.of(at)) : this.#clockAt(at);
  }

  until(at) {
    return this.#isEdge(at) ? `the end of ${date(this.#lastDay(at))}` : this.#clockAt(at);
  }

  moment(at) {
    return `at ${this.until(at)}`;
  }

  period(start, end) {
    if (!this.#isEdge(start) || !this.#isEdge(end)) return `${this.#clockAt(start)} – ${this.#clockAt(end)}`;
    const last = start < end ? this.#lastDay(end) : this.bins.of(end) - 1; // the time zone skipped a day
    return days(Math.min(this.bins.of(start), last), last);
  }

  onPage(text) {
    return text;
  }

  alone(text) {
    return `${text}, ${this.scale}`;
  }

  sliceLabels(starts) {
    return starts.map((from, i) => [i, withoutYear(this.from(from))]);
  }

  toForm({ start, end }) {
    return [this.bins.of(start), this.#lastDay(end)].map((day) => new Date(day * DAY * 1000).toISOString().slice(0, 10));
  }

  fromForm(from, to) {
    const [first, last] = [from, to].map((day) => Math.round(seconds(day) / DAY));
    return { start: this.bins.start(first), end: this.bins.start(last + 1) };
  }

  #isEdge(at) {
    return this.bins.start(this.bins.of(at)) === at;
  }

  #lastDay(end) {
    return this.bins.of(end - 1);
  }

  #clockAt(at) {
    return this.clock.format(new Date(at * 1000));
  }
}

// Return a date such as "29 Mar 2013". Args: the day, counted from 1970-01-01 on the calendar.
function date(day) {
  return dates.format(new Date(day * DAY * 1000));
}

// Return a range of days, such as "29 Mar 2013", "1–7 Apr 2013", "29 Mar – 3 Apr 2013" or
// "29 Mar 2013 – 2 Jan 2014".
function days(first, last) {
  const [from, to] = [first, last].map((day) => date(day).split(" "));
  if (first === last) return to.join(" ");
  const [dash, said] = from[2] !== to[2] ? [" – ", 3] : from[1] !== to[1] ? [" – ", 2] : ["–", 1];
  return from.slice(0, said).join(" ") + dash + to.join(" ");
}

const withoutYear = (text) => text.replace(/ \d{4}$/, "");
return { utc, seconds, day, timesOf };
})();

const $stream_app_api_dashboard_earlier_bins = (() => {
// The bins of earlier streams, whose history goes on in a stream with other bins. Ranges and steps must fit them, too.

const { binsOf } = $stream_app_api_dashboard_bins;
const { seconds } = $stream_app_api_dashboard_times;

const known = new WeakMap(); // by detail

// Return the earlier streams of a history whose bins differ from those of the stream, oldest first: their bins, and the
// instant until which they reach. Args: the answer of /v1/streams/{s}.
function piecesOf(detail) {
  if (!known.has(detail)) {
    const begins = [...(detail.history ?? []).slice(1).map((one) => one.start), detail.epochs[0]?.start];
    const all = (detail.history ?? []).map((one, i) => ({ ...one, start: seconds(one.start), until: seconds(begins[i]), bins: binsOf(one) }));
    known.set(detail, all.filter((one) => one.bin !== detail.bin));
  }
  return known.get(detail);
}

// Return whether the history of a stream has other bins.
const hasOtherBins = (detail) => piecesOf(detail).length > 0;

// Return the edges of bins around an instant: the last one before or at it, and the first one at or after it.
// Args: own, the bins of the stream.
function edgesAround(detail, own, at) {
  const piece = piecesOf(detail).find((one) => one.start <= at && at < one.until);
  const bins = piece?.bins ?? own;
  const before = bins.start(bins.of(at));
  return [before, before === at ? at : bins.start(bins.of(at) + 1)];
}

// Return the shortest time that is a whole number of bins of every stream whose bins reach beyond an instant, in
// seconds; null for calendar days, with their time zone.
function commonBin(detail, from) {
  const reached = [detail, ...piecesOf(detail).filter((one) => one.until > from)];
  const days = reached.find((one) => one.bin_seconds === null);
  if (days) return { length: null, zone: days.timezone };
  return { length: commonMultiple(reached.map((one) => one.bin_seconds)), zone: null };
}

// Return the shortest time that is a whole number of each length. All are in seconds.
function commonMultiple(lengths) {
  const divisor = (one, other) => (other ? divisor(other, one % other) : one);
  return lengths.map((length) => Math.round(length * 1e6)).reduce((one, other) => (one / divisor(one, other)) * other) / 1e6;
}
return { hasOtherBins, edgesAround, commonBin, commonMultiple };
})();

const $stream_app_api_dashboard_words = (() => {
// Writes numbers and lengths of time as text. The file times.js writes instants.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const MINUTE = 60, HOUR = 3600, DAY = 86400;

const count = (value) => whole.format(Math.round(value) || 0);
const error = (value) => (value >= 100 ? whole.format(value) : fine.format(value));

// Return the promise of an epoch: "ε = 1" with spaces that never break, or "(ε 1, δ 1e-6)" for an approximate stream.
const promise = ({ epsilon, delta }) => (delta ? `(ε\u00a0${epsilon}, δ\u00a0${delta})` : `ε\u00a0=\u00a0${epsilon}`);

// Return what all epochs over a source cost a user together, to follow the promise of an epoch; "" for no sum.
const soFar = (epsilon, delta) =>
  epsilon ? `, ${delta ? `(ε\u00a0${epsilon}, δ\u00a0${delta})` : epsilon} so far over its source` : "";

// Return what one epoch of a stream costs, and all epochs over its source so far where they add up, in a sentence.
const costs = (detail) => `${promise(detail)} per epoch${soFar(detail.epsilon_so_far, detail.delta_so_far)}.`;

// Return both ends of an interval of counts as text. They are rounded outwards, so the shown interval contains the
// exact one.
const between = (lower, upper) => [whole.format(Math.floor(lower + 1e-9) || 0), whole.format(Math.ceil(upper - 1e-9) || 0)];

// Return the words for an interval around a value. "± 12" always means half the width of the interval; an interval
// whose two sides are written differently is written with both.
function around(value, lower, upper) {
  const [below, above] = [value - lower, upper - value].map(error);
  return above === below ? `±\u00a0${above}` : `−${below} to +${above}`;
}

// Return a text that begins with a capital letter.
const sentence = (text) => text.replace(/^./, (letter) => letter.toUpperCase());

// Return what the service said instead of an answer, or that it said nothing, as a sentence.
const failure = (error) => (error.name === "ApiError" ? `${sentence(error.message)}.` : "The service does not answer.");

// Return a number that need not be whole as text: a rate, or a value of events.
const amount = (value) => (Math.abs(value) >= 1000 ? whole.format(value) : fine.format(value || 0));
function spread(lower, upper) {
  const size = Math.max(Math.abs(lower), Math.abs(upper), 1e-9);
  const unit = size >= 1000 ? 1 : 10 ** (Math.floor(Math.log10(size)) - 2);
  return [amount((Math.floor(lower / unit + 1e-9) || 0) * unit), amount((Math.ceil(upper / unit - 1e-9) || 0) * unit)];
}

// Return how many decimals a unit has: 2 for 0.01.
function places(unit) {
  const [digits, power = "0"] = String(unit).split("e");
  return Math.max(0, (digits.split(".")[1] ?? "").length - Number(power));
}

// Return a way to write numbers beside their errors: with the decimals that the error supports, at most ``most``. These
// are the decimals that show the first two digits of half the interval's width. Ends of intervals are rounded outwards.
// Without an interval, a number has all decimals. The terminal has the same rule (shell/numbers.py).
function decimals(most) {
  const forms = Array.from({ length: most + 1 }, (_, places) => fixed(places));
  const form = ([lower, upper]) => forms[upper > lower ? Math.min(most, Math.max(0, 1 - Math.floor(Math.log10((upper - lower) / 2)))) : most];
  return {
    value: (value, interval = [value, value]) => form(interval).value(value),
    between: (lower, upper) => form([lower, upper]).between(lower, upper),
  };
}

function fixed(places) {
  const text = new Intl.NumberFormat("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  const size = 10 ** places;
  const outwards = (value, round, dust) => text.format(round(value * size + dust) / size || 0);
  return {
    value: (value) => text.format(Math.round(value * size) / size || 0),
    between: (lower, upper) => [outwards(lower, Math.floor, 1e-6), outwards(upper, Math.ceil, -1e-6)],
  };
}

const COUNTS = { value: count, between };
const AMOUNTS = { value: amount, between: spread };

// Return what a range between two edges of a value holds. The first and the last range hold what is beyond them, too.
function valueRange(edges, i) {
  if (edges.length === 2) return "any value";
  if (i === 0) return `below ${amount(edges[1])}`;
  return i === edges.length - 2 ? `${amount(edges[i])} or more` : `${amount(edges[i])} to ${amount(edges[i + 1])}`;
}

// Return a sentence about values beyond the declared range.
const beyond = (edges) => `A value below ${amount(edges[0])} counts as ${amount(edges[0])}, and one above ${amount(edges.at(-1))} as ${amount(edges.at(-1))}.`;

function length(seconds) {
  for (const [size, name] of [[7 * DAY, "week"], [DAY, "day"], [HOUR, "hour"], [MINUTE, "minute"], [1, "second"]]) {
    if (seconds % size === 0) return seconds === size ? name : `${seconds / size} ${name}s`;
  }
  return `${seconds} seconds`;
}

// Return a length of time such as "12 s", "3 min 20 s", "5 h 10 min" or "2 days".
function wait(seconds) {
  const left = Math.max(0, Math.round(seconds));
  if (left < MINUTE) return `${left} s`;
  if (left < HOUR) return `${Math.floor(left / MINUTE)} min ${left % MINUTE} s`;
  if (left < 2 * DAY) return `${Math.floor(left / HOUR)} h ${Math.floor((left % HOUR) / MINUTE)} min`;
  return `${Math.floor(left / DAY)} days`;
}

const percent = (share) => `${+(share * 100).toFixed(4)} %`;
return { count, error, promise, soFar, costs, between, around, sentence, failure, amount, spread, places, decimals, COUNTS, AMOUNTS, valueRange, beyond, length, wait, percent };
})();

const $stream_app_api_dashboard_gaps = (() => {
// Times between two epochs that nobody measured. A line that crossed one would show numbers that nobody counted.

const { seconds } = $stream_app_api_dashboard_times;
const { count } = $stream_app_api_dashboard_words;

const MOST_GAPS = 3; // named; of more, the newest

// Return the times that nobody measured, as pairs [start, end] in seconds. Args: the answer of /v1/streams/{s}, or a
// stream of the overview.
const gapsOf = ({ unmeasured = [] }) => unmeasured.map(({ start, end }) => [seconds(start), seconds(end)]);

// Return a sentence about what a number does not hold; empty without gaps. Args: gaps, [{start, end}], as answers name them.
function gapsInWords(gaps, times) {
  const named = gaps.slice(-MOST_GAPS).map(({ start, end }) => times.onPage(times.period(seconds(start), seconds(end))));
  const more = gaps.length > MOST_GAPS ? [`${count(gaps.length - MOST_GAPS)} times before`] : [];
  return gaps.length ? `Not measured, and in no number here: ${[...more, ...named].join("; ")}.` : "";
}

// Return the places of the points after which a line breaks: a gap lies between the ends of a point and the next one.
// Args: ends, of points over time, in seconds; gaps, pairs [start, end].
function breaksAfter(ends, gaps) {
  if (!gaps.length) return [];
  const crosses = (from, to) => gaps.some(([start, end]) => start < to && end > from);
  return ends.slice(1).flatMap((to, i) => (crosses(ends[i], to) ? [i] : []));
}

// Return the places of the points with breaks on both sides: no line is drawn there.
function pointsAlone(count, breaks) {
  const after = new Set([-1, ...breaks, count - 1]);
  return [...after].filter((i) => i >= 0 && i < count && after.has(i - 1));
}
return { gapsOf, gapsInWords, breaksAfter, pointsAlone };
})();

const $stream_app_api_dashboard_headline = (() => {
// The large number at the top of a stream's page, with its interval: of the chosen range, keys and view. A stream with
// a sum has three numbers side by side: its total, its mean and its events. The reader chooses the one that the charts
// show.

const { hasOtherBins } = $stream_app_api_dashboard_earlier_bins;
const { at, bold, inBetween, make, say, showNumber } = $stream_app_api_dashboard_elements;
const { gapsInWords } = $stream_app_api_dashboard_gaps;
const { seconds } = $stream_app_api_dashboard_times;
const words = $stream_app_api_dashboard_words;

// Return the numbers of all measures for the chosen view and keys, by the names of the measures: {value, stderr,
// interval, confidence}. A number is null before the first release.
async function readHeadline(page) {
  const found = await Promise.all(page.measures.map((measure) => read(page, measure)));
  return Object.fromEntries(page.measures.map(({ name }, i) => [name, found[i]]));
}

async function read(page, measure) {
  if (!page.detail.running) return null;
  const part = page.isPart ? page.range() : null;
  if (measure.name !== "count") return page.ask(measure.single, part ?? {});
  const [whole, inRange] = await Promise.all([readWhole(page), part && readRange(page, part)]);
  return { ...inRange ?? await readEpoch(page, whole), whole };
}

// Return the number of events in a range, in the chosen view. Bins of several lengths have the estimate only.
async function readRange(page, { start, end }) {
  if (page.view === "unbiased" || hasOtherBins(page.detail)) return page.ask("count", { start, end });
  return only(await page.ask("series", { kind: "bin", step: page.bins.of(end) - page.bins.of(start), view: page.view, start, end }));
}

// Return the number of all events so far: the last point of the panel of the running count.
async function readWhole(page) {
  if (page.view === "unbiased" && !page.keys.length) return page.detail.running;
  const { start, end } = page.whole();
  const series = page.ask("series", { kind: "running", view: page.view, start: page.before(end, 1), end });
  if (page.detail.history?.every((one) => one.in_total) ?? true) return only(await series);
  const [found, { unmeasured }] = await Promise.all([series, page.ask("count", { start, end })]); // not every list has the keys
  return { ...only(found), unmeasured };
}

// Return the number of users first seen in the last epoch, for the chosen keys and view; otherwise what is given.
async function readEpoch(page, whole) {
  const { this_epoch: epoch } = page.detail;
  if (!epoch || releasedEpochs(page) < 2) return whole;
  if (page.view !== "consistent" && !page.keys.length) return epoch;
  const [start, end] = [seconds(epoch.start), seconds(epoch.end)];
  const view = page.view === "consistent" ? "consistent" : "unbiased";
  return only(await page.ask("series", { kind: "bin", step: page.bins.of(end) - page.bins.of(start), view, start, end }));
}

const only = ({ value, stderr, lower, upper, confidence }) => ({ value: value[0], stderr: stderr[0], interval: [lower[0], upper[0]], confidence });
// Return how many bins, or epochs, the streams before this one have released, whose history goes on here.
const released = (page, what) => (page.detail.history ?? []).filter((one) => one.in_total && one.bin === page.detail.bin).reduce((sum, one) => sum + one[what], 0);
const releasedEpochs = (page) => released(page, "epochs_released") + page.detail.epochs.filter((one) => one.bins_released).length;

// Args: found, as ``readHeadline`` returns it; until, the end of the last released bin; seq, of that release.
function showHeadline(page, found, until, seq) {
  const { times, measure } = page;
  const now = found[measure.name];
  const shown = now ? value(measure, now) : null;
  showNumber(at("value"), shown ?? "–");
  at("value").dataset.seq = String(seq);
  at("interval").replaceChildren(...(now ? intervalWords(page, now) : ["Nothing is released yet."]));
  at("released-until").textContent = until ? times.onPage(times.until(seconds(until))) : "–";
  say(at("bins-released"), `${words.count(seq + released(page, "bins_released"))} × ${times.oneBin}`);
  showRange(page, now);
  document.title = shown ? `${shown} · ${page.fullTitle}` : page.fullTitle;
  showOverEpochs(page, now);
  showUnmeasured(page, now?.whole?.unmeasured ?? page.detail.unmeasured ?? []);
  showMeasures(page, found);
}

// Over the number of a part of the stream say which part; below it, the number of the whole stream.
function showRange(page, now) {
  const part = now && page.isPart;
  at("value-range").hidden = !part;
  at("all-time").hidden = !(part && now.whole);
  if (!part) return;
  const { start, end } = page.range();
  say(at("value-range"), page.times.onPage(page.times.period(start, end)));
  if (now.whole) at("all-time").replaceChildren(`Since ${page.times.onPage(page.times.from(page.whole().start))}: `, bold(words.count(now.whole.value)), ` ${words.around(now.whole.value, ...now.whole.interval)}`);
}

// Return the number as a text to copy: what, when, the number, its interval and the address.
function headlineText(page) {
  const when = at("value-range").hidden ? `until ${at("released-until").textContent}` : at("value-range").textContent;
  return `${page.fullTitle}, ${when}: ${at("value").textContent}. ${at("interval").textContent}. ${window.location.href}`;
}

// Return the address of a board that has this number, with the configuration by which another page may embed it.
function embedAddress(page) {
  const { start, end } = page.range();
  const panel = { name: "number", show: "number", streams: [page.stream], measure: page.measure.name, range_seconds: page.isPart ? end - start : null };
  return `/boards#${new URLSearchParams({ board: JSON.stringify({ title: page.title, panels: [panel] }) })}`;
}

// Say how many users the stream has counted in all epochs together, once there are several.
function showOverEpochs(page, now) {
  const several = page.detail.this_epoch && !page.isPart ? releasedEpochs(page) : 0;
  at("over-epochs").hidden = several < 2;
  if (several < 2) return;
  const { value: sum, interval } = now.whole;
  const [lower, upper] = words.between(...interval);
  at("over-epochs").replaceChildren("Sum over all ", `${words.count(several)} epochs: `, bold(words.count(sum)),
    ` (${lower} to ${upper}). The sum counts a user once in every epoch.`);
}

// Say which times no epoch measured, or had no such key: no number on the page holds their events.
function showUnmeasured({ times }, gaps) {
  at("unmeasured").hidden = !gaps.length;
  say(at("unmeasured"), gapsInWords(gaps, times));
}

// Return the text of a number; null if the measure says that there are too few events for it.
const value = (measure, one) => (measure.enough?.(one) === false ? null : measure.numbers.value(one.value, one.interval));

function intervalWords(page, now) {
  const { measure } = page;
  const subject = measure.name === "count" ? `True number of ${page.isPart && now.counted ? now.counted : countedWords(page)}` : `True ${now.counted}`;
  const few = value(measure, now) === null ? ["Too few events for a mean. "] : [];
  const group = page.group(5);
  const whose = !group ? "" : group.includes(": ") ? ` (${group})` : ` for ${group}`; // values of fields follow their names
  return [...few, `${subject}${whose}: `, ...inBetween(measure.numbers.between(...now.interval)), " ", make("span", {}, `(${words.percent(now.confidence)})`)];
}

// Return what the number counts. A stream that counts users shows those of the last epoch.
function countedWords({ detail: { counted, this_epoch: epoch }, times, isPart }) {
  return epoch && !isPart ? epoch.counted.replace(epoch.start, times.onPage(times.from(seconds(epoch.start)))) : counted;
}

function showMeasures(page, found) {
  const host = at("measures");
  host.hidden = page.measures.length === 1;
  if (host.hidden) return;
  if (host.children.length === 1) host.append(...page.measures.map(tile));
  for (const measure of page.measures) {
    const now = found[measure.name];
    const [number, interval] = host.querySelectorAll(`[data-measure=${measure.name}] :is(b, small)`);
    say(number, now ? value(measure, now) ?? "too few events" : "–");
    say(interval, now ? measure.numbers.between(...now.interval).join(" to ") : "");
  }
  host.querySelector(`[value=${page.measure.name}]`).checked = true;
}

function tile({ name, title }) {
  return make("label", { dataset: { measure: name } },
    make("input", { type: "radio", name: "measure", value: name }),
    make("span", {}, title, make("b", {}), make("small", {})));
}
return { readHeadline, showHeadline, headlineText, embedAddress };
})();

const $stream_app_api_dashboard_chart_marks = (() => {
// Draws four things over a chart: thresholds, changes of alerts, annotations and the names of lines.

const { colour } = $stream_app_api_dashboard_frame;

const LEAST_ROOM = 24; // pixels per change; with less room, ticks replace the lines
const PLAIN = 10, ROW = 15; // pixels above a plot without names, and of each row of names
const REACH = 5; // pixels between a change and a pointer that points at it
const DASH = { resolved: [4, 3], pending: [1, 3], inactive: [1, 3] };
const INK = { firing: "--bad", resolved: "--good", pending: "--wait", inactive: "--muted" };

// Return the colours of a line and of its band.
const inkOf = ({ quiet, ink }) => colour(quiet ? "--muted" : ink ?? "--accent");
const bandOf = ({ quiet, ink }) => (ink && !quiet ? `${colour(ink)}26` : colour(quiet ? "--band-quiet" : "--band"));

// Return the ends of the vertical axis: extended to the thresholds, except to those so far away that the chart
// would become too flat to read.
function levelsWithin(levels, low, high) {
  const room = 2 * Math.max(high - low, 1);
  const near = levels.map((level) => level.value).filter((value) => value > low - room && value < high + room);
  return [Math.min(low, ...near), Math.max(high, ...near)];
}

// Draw the inner intervals of a band below it, so that the band is darker where the true number more likely lies.
function drawInner(u, { lines, start, end }, stepped, breaks) {
  const [x, y] = ["x", "y"].map((axis) => (at) => u.valToPos(at, axis, true));
  const { left, top, width, height } = u.bbox;
  onPaper(u, (paper) => {
    paper.beginPath();
    paper.rect(left, top, width, height);
    paper.clip();
    for (const line of lines) {
      for (const half of line.inner ?? []) {
        const known = (i) => line.value[i] !== null && line.value[i] !== undefined;
        paper.beginPath();
        line.value.forEach((value, i) => {
          const next = stepped ? i : i + 1;
          if (!known(i) || !known(next) || (!stepped && breaks.has(i))) return;
          const [from, to] = stepped ? [start[i], end[i]] : [end[i], end[next]];
          paper.moveTo(x(from), y(value + half[i]));
          paper.lineTo(x(to), y(line.value[next] + half[next]));
          paper.lineTo(x(to), y(line.value[next] - half[next]));
          paper.lineTo(x(from), y(value - half[i]));
        });
        paper.fillStyle = bandOf(line);
        paper.fill();
      }
    }
  });
}

// Draw points that no line reaches, because nobody measured the times beside them: a dot, and its interval as a bar.
function drawAlone(u, lines, places) {
  const at = (value) => u.valToPos(value, "y", true);
  onPaper(u, (paper, ratio) => {
    for (const line of lines) {
      const { value, lower, upper } = line;
      const ink = inkOf(line);
      for (const place of places.filter((one) => value[one] !== null)) {
        const x = u.valToPos(u.data[0][place], "x", true);
        stroke(paper, [[x, at(lower[place])], [x, at(upper[place])]], bandOf(line), 6 * ratio, []);
        paper.beginPath();
        paper.arc(x, at(value[place]), 2.5 * ratio, 0, 2 * Math.PI);
        paper.fillStyle = ink;
        paper.fill();
      }
    }
  });
}

// Draw a line at 0, where values below it are in sight, too.
function drawZero(u) {
  if (!(u.scales.y.min < 0 && u.scales.y.max > 0)) return;
  const y = u.valToPos(0, "y", true);
  onPaper(u, (paper, ratio) => stroke(paper, [[u.bbox.left, y], [u.bbox.left + u.bbox.width, y]], colour("--muted"), ratio, []));
}

// The strip above a plot, which holds the names of marks, so that no name covers a line of the chart. The lowest row is 0.
class Strip {
  #taken = []; // [left, right, lowest row, highest row]

  // Args: left and right, its ends in pixels.
  constructor(rows, left, right) {
    Object.assign(this, { rows, left, right });
  }

  // Take room for a name beside the mark at x, and return {row, from, words}; null if there is none. A mark's line goes
  // down from its name, and crosses no other name. Args: texts, the longest first, each {words, width}.
  take(x, texts) {
    for (const { words, width } of texts) {
      for (const from of [x, x - width]) {
        if (from < this.left || from + width > this.right) continue;
        for (let row = 0; row < this.rows; row++) {
          const boxes = [[from, from + width, row, row], [x - 1, x + 1, 0, row]];
          if (!boxes.every((box) => this.#isFree(box))) continue;
          this.#taken.push(...boxes);
          return { row, from, words };
        }
      }
    }
    return null;
  }

  #isFree([left, right, low, high]) {
    return this.#taken.every((other) => right < other[0] || left > other[1] || high < other[2] || low > other[3]);
  }
}

const isMany = (marks, width) => marks > width / LEAST_ROOM;

// Return how many pixels are needed above a plot: a strip with the names of marks and the numbers of annotations.
function roomAbove({ marks = [] }, annotations, [from, to], { width, height }) {
  const changes = marks.filter(({ at }) => at >= from && at <= to).length;
  const named = (isMany(changes, width) ? 1 : changes) + annotations.filter(({ start, end }) => (end ?? start) >= from && start <= to).length;
  return PLAIN + ROW * Math.min(named, height > 250 ? 3 : 2);
}

// Draw thresholds. Their names stand right of the plot, as those of lines do.
function drawLevels(u, levels) {
  const { left, width } = u.bbox;
  onPaper(u, (paper, ratio) => {
    for (const { value } of levels.filter((level) => isWithin(u, level.value))) {
      const y = u.valToPos(value, "y", true);
      stroke(paper, [[left, y], [left + width, y]], colour("--bad"), ratio, [2 * ratio, 4 * ratio]);
    }
  });
}

const isWithin = (u, value) => value >= u.scales.y.min && value <= u.scales.y.max;

// Draw annotations, then a vertical line for every change of an alert, with their names in a strip above the plot. If there
// are so many changes that the lines would hide the counts, draw short ticks there instead. Rules that fire are named first,
// then the newest changes. A name without room is shortened or left out; the table and the text for the pointed-at point always name every change.
function drawMarks(u, marks, annotations) {
  onPaper(u, (paper, ratio, font) => {
    const { left, top, width, height } = u.bbox;
    const strip = new Strip(Math.floor((top / ratio - PLAIN) / ROW), left, u.ctx.canvas.width);
    const base = (row) => top - (5 + ROW * row) * ratio;
    drawAnnotations(u, annotations, paper, ratio, (x, number) => {
      paper.font = `600 ${font}`;
      const place = strip.take(x, [{ words: String(number), width: paper.measureText(number).width + 3 * ratio }]);
      if (place) text(paper, place.words, place.from + 2 * ratio, base(place.row), colour("--ink"), paper.font);
    });
    const shown = marks.filter(({ at }) => at >= u.scales.x.min && at <= u.scales.x.max).map((mark) => ({ ...mark, x: u.valToPos(mark.at, "x", true) }));
    paper.font = font;
    const wide = (words) => ({ words, width: paper.measureText(words).width + 8 * ratio });
    const draw = ({ x, kind }, from, to) => stroke(paper, [[x, from], [x, to]], colour(INK[kind] ?? "--muted"), ratio, (DASH[kind] ?? []).map((part) => part * ratio));
    if (isMany(shown.length, width / ratio)) {
      const place = strip.take(left, [wide(`${shown.length} changes of alerts`)]);
      if (place) text(paper, place.words, left, base(place.row), colour("--muted"), font);
      return shown.forEach((mark) => draw(mark, top - 4 * ratio, top));
    }
    const firing = ({ kind }) => (kind === "firing" ? 0 : 1);
    for (const mark of shown.toReversed().sort((one, other) => firing(one) - firing(other))) {
      const { x, name, kind } = mark;
      const place = strip.take(x, [wide(`${name} ${kind}`), wide(name)]);
      draw(mark, place ? base(place.row) - 9 * ratio : top, top + height);
      if (place) text(paper, place.words, place.from + 5 * ratio, base(place.row), colour(INK[kind] ?? "--muted"), font);
    }
    return undefined;
  });
}

// Return the marks (changes of alerts' states) that are at most REACH pixels left or right of the pointer.
function marksUnder(u, marks) {
  const { left } = u.cursor;
  if (left === undefined || left < 0) return [];
  return marks.filter(({ at }) => Math.abs(u.valToPos(at, "x") - left) <= REACH);
}

// Draw annotations: a line at an instant or a shade over a length of time. Args: write(x, number), writes above the plot
// the number that the list below has.
function drawAnnotations(u, annotations, paper, ratio, write) {
  const { min, max } = u.scales.x;
  const { left, top, width, height } = u.bbox;
  const pixel = (at) => Math.min(Math.max(u.valToPos(at, "x", true), left), left + width);
  for (const { start, end, number } of annotations.filter((one) => (one.end ?? one.start) >= min && one.start <= max)) {
    const [from, to] = [pixel(start), pixel(end ?? start)];
    paper.fillStyle = colour("--band-quiet");
    if (end !== null) paper.fillRect(from, top, to - from, height);
    stroke(paper, [[from, top], [from, top + height]], colour("--muted"), ratio, [ratio, 3 * ratio]);
    write(from, number);
  }
}

// Return the annotations at the pointer: an instant at most REACH pixels away, or a length of time around it.
function annotationsUnder(u, annotations) {
  const { left } = u.cursor;
  if (left === undefined || left < 0) return [];
  const at = (instant) => u.valToPos(instant, "x");
  return annotations.filter(({ start, end }) => at(start) - REACH <= left && left <= at(end ?? start) + REACH);
}

// Return how many pixels the names of lines and thresholds need right of a plot. Args: lines, those with names.
function roomBeside(lines, levels, width) {
  const paper = document.createElement("canvas").getContext("2d");
  paper.font = nameFont(1);
  const wide = (words) => paper.measureText(words ?? "").width + 12;
  const names = lines.map(({ name }) => wide(name));
  return Math.max(lines.length ? 74 : 32, ...names, ...levels.map((level) => wide(levelName(level, paper, width, 1))));
}

// Return a threshold's name; in a chart where it would take much of the width, without that of its rule.
const levelName = ({ name, short }, paper, width, ratio) => (paper.measureText(name).width > Math.min(width / 4, 160 * ratio) ? short : name);

// Write the names of lines at their right ends, and those of thresholds. They are moved down so that they do not overlap;
// a threshold's name that finds no room beside the plot is left out.
function drawNames(u, lines, levels) {
  onPaper(u, (paper, ratio, font) => {
    paper.font = font;
    const ends = lines
      .map((line) => ({ words: line.name, ink: inkOf(line), value: line.value.findLast((value) => value !== null) }))
      .filter(({ words, value }) => words && value !== undefined);
    const thresholds = levels.filter((level) => isWithin(u, level.value))
      .map((level) => ({ words: levelName(level, paper, u.width * ratio, ratio), ink: colour("--bad"), value: level.value, spare: true }));
    const placed = [...ends, ...thresholds].map((end) => ({ ...end, y: u.valToPos(end.value, "y", true) })).sort((one, other) => one.y - other.y);
    let free = -Infinity;
    for (const { words, ink, y, spare } of placed) {
      const place = Math.max(y, free);
      if (spare && place > u.bbox.top + u.bbox.height) continue;
      free = place + 15 * ratio;
      text(paper, words, u.bbox.left + u.bbox.width + 6 * ratio, place + 4 * ratio, ink, font);
    }
  });
}

function onPaper(u, draw) {
  const ratio = window.devicePixelRatio || 1;
  u.ctx.save();
  draw(u.ctx, ratio, nameFont(ratio));
  u.ctx.restore();
}

const nameFont = (ratio) => `${11.5 * ratio}px ${getComputedStyle(document.body).fontFamily}`;

function stroke(paper, points, ink, width, dash) {
  paper.beginPath();
  points.forEach(([x, y]) => paper.lineTo(x, y));
  paper.setLineDash(dash);
  Object.assign(paper, { strokeStyle: ink, lineWidth: width });
  paper.stroke();
}

function text(paper, words, x, y, ink, font) {
  Object.assign(paper, { font, fillStyle: ink, textAlign: "left", textBaseline: "alphabetic" });
  paper.fillText(words, x, y);
}
return { inkOf, bandOf, levelsWithin, drawInner, drawAlone, drawZero, Strip, roomAbove, drawLevels, drawMarks, marksUnder, annotationsUnder, roomBeside, drawNames };
})();

const $stream_app_api_dashboard_charts = (() => {
// Draws lines with uPlot. A band around each line shows the intervals of its points. The horizontal axis is time
// or the stream's value.
//
// A chart draws a picture: {start, end, lines, nodes, seq, view, levels, marks}. ``end`` has the position of each
// point on the horizontal axis. If each point counts a span of that axis, ``start`` has the starts of the spans.
// A line is {name, value, lower, upper, inner}; ``inner`` has half widths of intervals inside of the band. A line
// with ``dash``, true or lengths, is dashed; a line with ``quiet`` has a muted colour, and one with ``ink`` the colour of this variable.
// ``numbers`` writes the lines' values, and ``counted`` names them; without them the options of the chart do.
// With ``afloat`` the vertical axis need not begin at 0.
// ``levels`` are thresholds {value, name, short}; ``beside``, if given, those of the chart above. ``marks`` are changes of alerts {at, name, kind}.

const { colour } = $stream_app_api_dashboard_frame;
const { annotationsUnder, bandOf, drawAlone, drawInner, drawLevels, drawMarks, drawNames, drawZero, inkOf, levelsWithin, marksUnder, roomAbove, roomBeside } = $stream_app_api_dashboard_chart_marks;
const { breaksAfter, pointsAlone } = $stream_app_api_dashboard_gaps;
const { amount, around, COUNTS } = $stream_app_api_dashboard_words;

const HEIGHTS = { plot: { wide: 270, narrow: 220 }, strip: { wide: 120, narrow: 110 } };
const STRONG = { ofWindow: 0.4, least: 270, most: 460 }; // the height of a page's first chart
const WHOLE_STEPS = [1, 10, 100, 1000, 10000].flatMap((one) => [one, 2 * one, 5 * one]);
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 6 }); // 1.25K

class BandChart {
  // Options:
  //   stepped: each value belongs to a whole span and is drawn as a step.
  //   strip: the chart is low and shows signed numbers.
  //   value: the horizontal axis is the stream's value, not time.
  //   place(number): text for a whole number on the horizontal axis, for example the key at this place.
  //   strong: the first chart of a page, which is higher than the others.
  //   fromZero: the vertical axis starts at 0.
  //   numbers: how to write the lines' values. times(): how to write instants.
  //   gaps(): times that nobody measured, pairs [start, end]; lines break there.
  //   annotations(): texts beside times, {start, end, number, text}.
  //   legend: the names of lines stand above the chart, not at their ends.
  //   sync: charts with the same key move their cursors together.
  //   title(): the chart's title. onZoom(start, end), onReset(): called when the reader zooms in or out.
  //   readout(point), speak(text): show or speak the point under the cursor.
  constructor(host, options) {
    this.host = host;
    this.options = { numbers: COUNTS, gaps: () => [], annotations: () => [], ...options };
    this.picture = null;
    this.plot = null;
    new ResizeObserver(() => this.#resize()).observe(host);
    host.addEventListener("keydown", (event) => this.#key(event));
    host.addEventListener("blur", () => this.plot?.setCursor({ left: -10, top: -10 }, true, true));
  }

  // Draw a picture. Args: spanSeconds, the length of each point's span; start and end of the horizontal axis.
  show(picture, spanSeconds, { start, end }) {
    const known = this.plot && this.picture.lines.length === picture.lines.length;
    this.picture = picture;
    this.spanSeconds = spanSeconds;
    this.domain = [start, end];
    this.breaks = breaksAfter(picture.end, this.options.gaps());
    const data = this.#columns();
    if (known) this.plot.setData(data);
    else if (data[0].length) this.#build(data);
    this.host.dataset.points = String(picture.end.length);
    this.host.dataset.seq = String(picture.seq);
    this.host.dataset.view = picture.view ?? "";
    this.#read(this.plot?.cursor.idx ?? null);
    this.host.setAttribute("aria-label", this.#summary());
  }

  // Draw again after a change of the theme. A plot reads its colours only once, so this makes a new plot.
  restyle() {
    if (this.plot) this.#build(this.plot.data);
  }

  get canvas() {
    return this.plot?.ctx.canvas ?? null;
  }

  // Return the texts that describe one point. They name all changes of alerts since the previous point.
  point(index) {
    const { lines, start, end, nodes } = this.picture;
    const { unit = "", times } = this.options;
    const { numbers } = this;
    const when = this.options.value ? this.#where(index) : this.options.stepped && start
      ? times().period(start[index], end[index], this.spanSeconds) : `until ${times().until(end[index], this.spanSeconds)}`;
    const said = lines.map((line) => lineWords(line, index, numbers, unit));
    return { when, lines: said, nodes: nodes ? nodes[index] : null, changes: this.#changes(index) };
  }

  get numbers() {
    return this.picture?.numbers ?? this.options.numbers;
  }

  // Return the name of the values, for heads of columns.
  get counted() {
    return this.picture?.counted ?? this.options.counted ?? "Count";
  }

  #where(index) {
    const { start, end } = this.picture;
    if (this.options.place) return this.options.place(Math.round(start ? (start[index] + end[index]) / 2 : end[index]));
    return start ? `${amount(start[index])} to ${amount(end[index])}` : `up to ${amount(end[index])}`;
  }

  #changes(index) {
    const { start, end, marks } = this.picture;
    if (!marks?.length) return [];
    const from = index ? end[index - 1] : start ? start[0] : -Infinity;
    return this.#told(marks.filter(({ at }) => at > from && at <= end[index]));
  }

  // Add a text to each change of an alert, for example "busy firing at 3 Jan 2013, 02:00".
  #told(marks) {
    return marks.map((mark) => ({ ...mark, words: `${mark.name} ${mark.kind} at ${this.options.times().until(mark.at, null)}` }));
  }

  #columns() {
    const { lines, start, end } = this.picture;
    const columns = lines.flatMap((line) => [line.value, line.lower, line.upper]);
    if (!this.options.stepped || !end.length) return [end, ...columns];
    // uPlot draws a step up to the next point that has a value. So one point is added at the end of the last span, and a
    // point without a value gets the one before, which the gaps of the line hide.
    const closed = (column) => {
      let last = null;
      return [...column, column[column.length - 1]].map((one) => (last = one ?? last));
    };
    return [[...start, end[end.length - 1]], ...columns.map(closed)];
  }

  #build(data) {
    this.plot?.destroy();
    this.host.replaceChildren();
    this.plot = new uPlot(this.#plotOptions(), data, this.host);
    this.plot.over.addEventListener("dblclick", () => this.options.onReset?.());
  }

  #plotOptions() {
    const { stepped, strip, sync, value: overValue, place, times, onZoom, legend, annotations } = this.options;
    const paths = stepped ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font };
    const lines = this.picture.lines;
    const named = lines.length > 1 && !strip && !legend;
    const gaps = (u, place, first, last, unknown) => this.#breaksIn(u, [...unknown, ...this.#unknownSteps(u, place)]);
    const edge = { paths, gaps, stroke: "transparent", width: 0, points: { show: false } };
    const dots = (pick) => (u, index) => (index % 3 === 1 ? pick(lines[(index - 1) / 3]) : "transparent");
    const places = { values: (u, ticks) => ticks.map(place), incrs: WHOLE_STEPS, space: 90 };
    const across = place ? places : overValue ? { values: (u, ticks) => ticks.map(amount) } : times().axis;
    return {
      ...this.#size(),
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), this.options.times().clockZone),
      padding: [() => this.#above(), () => this.#beside(named), strip ? 8 : 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        dataIdx: (u, place, nearest) => this.#known(place, this.#under(u, nearest)),
        drag: { x: Boolean(onZoom), y: false, setScale: false },
        sync: sync ? { key: sync, setSeries: false } : undefined,
        points: { size: 9, width: 2, fill: dots(inkOf), stroke: dots(() => colour("--card")) },
      },
      scales: { x: { time: !overValue, range: () => this.domain }, y: { range: (u, low, high) => this.#limits(low, high) } },
      axes: [
        { ...axis, space: 70, gap: 8, ...across, size: overValue ? 32 : 50, show: !strip },
        { ...axis, size: 58, space: strip ? 18 : 40, values: (u, ticks, place, space, distance) => ticks.map((tick) => (strip && tick > 0 ? "+" : "") + tickText(tick, distance)) },
      ],
      series: [
        {},
        ...lines.flatMap((line) => [
          { paths, gaps, stroke: inkOf(line), width: stepped || strip ? 1.25 : 2, dash: line.dash === true ? [6, 5] : line.dash, points: { show: false } },
          edge,
          edge,
        ]),
      ],
      bands: lines.map((line, i) => ({ series: [3 * i + 3, 3 * i + 2], fill: bandOf(line) })),
      hooks: {
        drawClear: [(u) => drawInner(u, this.picture, stepped, new Set(this.breaks))],
        setCursor: [(u) => this.#read(this.#under(u, u.cursor.idx))],
        setSelect: [(u) => this.#zoom(u)],
        draw: [(u) => {
          if (!strip) drawZero(u);
          if (!stepped) drawAlone(u, lines, pointsAlone(u.data[0].length, this.breaks));
          const { levels = [], marks = [] } = this.picture;
          drawLevels(u, levels);
          drawMarks(u, marks, annotations());
          drawNames(u, named ? this.picture.lines : [], levels);
        }],
      },
    };
  }

  #above() {
    return roomAbove(this.picture, this.options.strip ? [] : this.options.annotations(), this.domain, this.#size());
  }

  // Return the room right of the plot. A chart below another one has the room of that one, so that their times agree.
  #beside(named) {
    const { lines, levels = [], beside = levels } = this.picture;
    return roomBeside(named ? lines : [], beside, this.#size().width);
  }

  // Return where lines break: pairs of pixels, in order. Args: unknown, those of points without a value.
  #breaksIn(u, unknown) {
    const { start, end } = this.picture;
    const next = this.options.stepped ? start : end;
    const pixel = (at) => u.valToPos(at, "x", true);
    const found = [...unknown, ...this.breaks.map((i) => [pixel(end[i]), pixel(next[i + 1])])].sort(([one], [other]) => one - other);
    let last = -Infinity;
    return found.map(([from, to]) => [Math.max(from, last), (last = Math.max(to, last))]);
  }

  // Return the steps without a value as pairs of pixels, with the vertical line to the next step. Args: place, of uPlot's
  // series, which are three for each line.
  #unknownSteps(u, place) {
    const { start, end } = this.picture;
    if (!this.options.stepped) return [];
    const pixel = (at) => u.valToPos(at, "x", true);
    return this.#column(place).flatMap((value, i) => (value === null && i ? [[pixel(start[i]), pixel(end[i]) + 1]] : []));
  }

  #column(place) {
    const line = this.picture.lines[Math.floor((place - 1) / 3)];
    return [line.value, line.lower, line.upper][(place - 1) % 3];
  }

  // Return the index of a point; null if the series has no value there, so that no dot is drawn.
  #known(place, index) {
    return place && index !== null && this.#column(place)[index] === null ? null : index;
  }

  // Return the ends of the vertical axis. With the option fromZero it starts at 0, unless values are negative.
  #limits(low, high) {
    if (low === null || high === null) return [0, 1];
    const [least, most] = levelsWithin(this.picture.levels ?? [], low, high);
    const flat = this.numbers === COUNTS || most - least < 1e-6;
    const room = Math.max((most - least) * 0.06, flat ? 0.5 : 1e-9);
    return [this.options.fromZero && !this.picture.afloat && least >= 0 ? 0 : least - room, most + room];
  }

  #size() {
    const width = Math.max(this.host.clientWidth, 200);
    if (this.options.strong && width >= 600) return { width, height: Math.round(Math.min(Math.max(STRONG.ofWindow * window.innerHeight, STRONG.least), STRONG.most)) };
    const own = parseFloat(getComputedStyle(this.host).getPropertyValue("--plot-height"));
    if (own) return { width, height: own };
    const heights = this.options.strip ? HEIGHTS.strip : HEIGHTS.plot;
    return { width, height: width < 600 ? heights.narrow : heights.wide };
  }

  #resize() {
    const size = this.#size();
    if (this.plot && (this.plot.width !== size.width || this.plot.height !== size.height)) this.plot.setSize(size);
  }

  #zoom(u) {
    if (u.select.width < 6) return;
    const [from, to] = [u.select.left, u.select.left + u.select.width].map((x) => u.posToVal(x, "x"));
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.options.onZoom(from, to);
  }

  // Return the index of the point whose span contains the pointer. uPlot itself would take the nearest start.
  #under(u, nearest) {
    if (!this.options.stepped || !nearest) return nearest;
    return u.valToPos(u.data[0][nearest], "x") - u.cursor.left > 0.5 ? nearest - 1 : nearest;
  }

  #read(index) {
    const last = this.picture ? this.picture.end.length - 1 : -1;
    const at = index === null || index === undefined || index > last ? last : index;
    if (at < 0) return this.options.readout(null);
    const point = this.point(at);
    const near = at === index ? marksUnder(this.plot, this.picture.marks ?? []) : [];
    if (near.length) point.changes = this.#told(near);
    if (at === index) point.annotations = annotationsUnder(this.plot, this.options.annotations());
    else point.newest = "Last: ";
    return this.options.readout(point);
  }

  #key(event) {
    if (event.key === "Escape") return this.options.onReset?.();
    if (!this.plot || !this.picture.end.length) return undefined;
    const last = this.picture.end.length - 1;
    const now = this.plot.cursor.idx ?? last;
    const big = Math.max(1, Math.round(last / 20));
    const moves = { ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now - big, PageDown: now + big, Home: 0, End: last };
    if (!(event.key in moves)) return undefined;
    event.preventDefault();
    const to = Math.min(Math.max(moves[event.key], 0), last);
    this.plot.setCursor({ left: this.plot.valToPos(this.plot.data[0][to], "x"), top: 10 }, true, true);
    this.options.speak(this.#inWords(to));
    return undefined;
  }

  #summary() {
    const last = this.picture.end.length - 1;
    const title = this.options.title();
    return last < 0 ? `${title}: nothing to show` : `${title}, ${last + 1} points; the last, ${this.#inWords(last)}`;
  }

  #inWords(index) {
    const { when, lines, changes } = this.point(index);
    const each = lines.map(({ name, value, lower, upper }) => `${name ? `${name} ` : ""}${value}${lower === null ? "" : `, between ${lower} and ${upper}`}`);
    return [`${when}: ${each.join("; ")}`, ...changes.map(({ words }) => words)].join("; ");
  }
}

// Return the text of a tick. Neighbouring ticks that are close have the decimals that tell them apart.
// A tick has the decimals of the distance between ticks: 0.25, not 0.3.
function tickText(tick, distance) {
  if (distance >= 1 || distance < 1e-4) return compact.format(tick);
  const decimals = [1, 2, 3, 4, 5].find((n) => Math.abs(distance * 10 ** n - Math.round(distance * 10 ** n)) < 1e-6);
  return tick.toFixed(decimals ?? 6);
}

function lineWords(line, index, numbers, unit) {
  const value = line.value[index];
  if (line.half) return { name: line.name, value: around(0, line.lower[index], line.upper[index]), lower: null, upper: null };
  const interval = [line.lower[index], line.upper[index]];
  const said = value === null ? numbers.none ?? "cannot be told" : numbers.value(value, interval) + unit;
  const [lower, upper] = line.lower[index] === null ? [null, null] : numbers.between(...interval);
  return { name: line.name, value: said, lower, upper };
}
return { BandChart };
})();

const $stream_app_api_dashboard_download = (() => {
// Saves a panel's numbers as a CSV or JSON file, and its charts as a PNG file. Nothing leaves the browser.

const { make } = $stream_app_api_dashboard_elements;
const { colour } = $stream_app_api_dashboard_frame;

function save(name, blob) {
  const url = URL.createObjectURL(blob);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// Save rows as a file for spreadsheets. A text that a spreadsheet would compute gets an apostrophe before it. Letters
// beyond ASCII need a mark at the start of the file, or Excel shows others.
function saveCsv(name, heads, rows) {
  const safe = (value) => (typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? ""));
  const cell = (value) => (/[",\r\n]/.test(safe(value)) ? `"${safe(value).replaceAll('"', '""')}"` : safe(value));
  const text = [heads, ...rows].map((row) => row.map(cell).join(",")).join("\r\n");
  const mark = /[^\0-\x7f]/.test(text) ? "\ufeff" : "";
  save(`${name}.csv`, new Blob([`${mark}${text}\r\n`], { type: "text/csv" }));
}

function saveJson(name, answer) {
  save(`${name}.json`, new Blob([`${JSON.stringify(answer, null, 1)}\n`], { type: "application/json" }));
}

// Save canvases as one picture, with lines of text above them. Args: labels, one text above each canvas; canvases
// with labels are in three columns.
function savePng(name, [title, ...lines], canvases, labels = []) {
  const ratio = window.devicePixelRatio || 1;
  const across = labels.length ? 3 : 1; // columns
  const [width, height] = [canvases[0].width, canvases[0].height + (labels.length ? 22 * ratio : 0)];
  const head = (34 + 18 * lines.length) * ratio;
  const paper = make("canvas", { width: Math.max(width * across, 560 * ratio) + 32 * ratio, height: head + Math.ceil(canvases.length / across) * height + 16 * ratio });
  const ink = paper.getContext("2d");
  ink.fillStyle = colour("--card");
  ink.fillRect(0, 0, paper.width, paper.height);
  const family = getComputedStyle(document.body).fontFamily;
  const write = (text, x, y, font, shade) => {
    Object.assign(ink, { font, fillStyle: colour(shade) });
    ink.fillText(text, x, y);
  };
  write(title, 16 * ratio, 26 * ratio, `600 ${16 * ratio}px ${family}`, "--ink");
  lines.forEach((line, i) => write(line, 16 * ratio, (46 + 18 * i) * ratio, `${12.5 * ratio}px ${family}`, "--muted"));
  canvases.forEach((canvas, i) => {
    const [x, y] = [16 * ratio + (i % across) * width, head + Math.floor(i / across) * height];
    if (labels[i]) write(labels[i], x, y + 15 * ratio, `${12.5 * ratio}px ${family}`, "--ink");
    ink.drawImage(canvas, x, y + (labels.length ? 22 * ratio : 0));
  });
  // canvas.toBlob would answer later. Browsers allow a download only shortly after a click, so this line does not wait.
  const bytes = Uint8Array.from(atob(paper.toDataURL("image/png").split(",")[1]), (letter) => letter.charCodeAt(0));
  save(`${name}.png`, new Blob([bytes], { type: "image/png" }));
}
return { save, saveCsv, saveJson, savePng };
})();

const $stream_app_api_dashboard_tables = (() => {
// Makes tables of a chart's numbers, for readers who cannot use charts.

const { make } = $stream_app_api_dashboard_elements;

function grid(caption, heads, rows) {
  const line = (name, cells, properties = {}) => make("tr", {}, ...cells.map((cell) => make(name, properties, String(cell))));
  return make("table", {},
    make("caption", {}, caption),
    make("thead", {}, line("th", heads, { scope: "col" })),
    make("tbody", {}, ...rows.map((cells) => line("td", cells))));
}

// Return a table of a chart's newest points: a count and an interval for each line. If there is only one line, the
// table has its standard error too.
function pictureTable(chart, most = 60) {
  const { picture } = chart;
  const last = picture.end.length - 1;
  const points = Array.from({ length: Math.min(most, last + 1) }, (_, back) => last - back);
  const named = (name, head) => (name ? `${name}: ${head.toLowerCase()}` : head);
  const heads = [chart.options.across ?? `When (${chart.options.times().scale})`, ...picture.lines.flatMap(({ name }) => [named(name, chart.counted), named(name, "At least"), named(name, "At most")])];
  if (picture.stderr) heads.push("Standard error");
  if (picture.nodes) heads.push("Noisy counts used");
  if (picture.marks?.length) heads.push("Alerts");
  const rows = points.map((at) => {
    const said = chart.point(at);
    const cells = [said.when, ...said.lines.flatMap(({ value, lower, upper }) => [value, lower ?? "", upper ?? ""])];
    if (picture.stderr) cells.push(chart.numbers.value(picture.stderr[at], [picture.lines[0].lower[at], picture.lines[0].upper[at]]));
    if (picture.nodes) cells.push(said.nodes);
    if (picture.marks?.length) cells.push(said.changes.map(({ words }) => words).join("; "));
    return cells;
  });
  return grid(`The newest ${rows.length} of ${last + 1} points`, heads, rows);
}
return { grid, pictureTable };
})();

const $stream_app_api_dashboard_panel = (() => {
// A panel is a card with a chart, a text about the point under the pointer, a table of the chart's numbers and
// buttons that save files.

const { BandChart } = $stream_app_api_dashboard_charts;
const { saveCsv, saveJson, savePng } = $stream_app_api_dashboard_download;
const { bold, explained, make, say } = $stream_app_api_dashboard_elements;
const { gapsOf } = $stream_app_api_dashboard_gaps;
const { pictureTable } = $stream_app_api_dashboard_tables;
const { utc } = $stream_app_api_dashboard_times;
const { costs } = $stream_app_api_dashboard_words;

// A sentence of many answers that the page says once, below all charts; and one that stands with the numbers it is about.
const SAID_ONCE = "Each interval is for one point. Of many 95 % intervals, about 1 in 20 misses the true number.";
const SHORTENED = /[\d,]+ points are shortened to [^.]*\.\s*/;

class Panel {
  // A subclass defines ask(page), which requests the answer, and show(answer, page), which draws it. It may define
  // static applies(page), which says whether the stream has this panel. A subclass that draws anything other than
  // one BandChart also defines table(), csv() and canvases().
  constructor(page, name, title, about = "") {
    this.page = page;
    this.name = name = page.place(name);
    this.heading = make("h2", { id: `${name}-title` }, title);
    this.readout = make("p", { className: "readout", id: `${name}-readout` });
    this.tools = make("div", { className: "tools" });
    this.body = make("div", { className: "panel-body" });
    this.note = make("p", { className: "note" });
    this.urgent = make("p", { className: "urgent", role: "status" }); // what a reader must know at once
    this.numbers = make("div", { tabIndex: 0, role: "region", id: `${name}-table`, "aria-label": `Numbers: ${page.heads(title)}` });
    this.details = make("details", { className: "numbers" }, make("summary", {}, "Numbers"), this.shortened = make("p", { className: "muted" }), this.numbers);
    this.details.addEventListener("toggle", () => this.fillTable());
    this.saving = make("div", { className: "saving", role: "group", "aria-label": `Save: ${title}` },
      this.#saver("CSV", async () => saveCsv(this.file(), ...await this.csv()), "All numbers of this panel, with times in UTC"),
      this.#saver("JSON", () => saveJson(this.file(), this.answer)),
      this.#saver("PNG", () => savePng(this.file(), this.caption(), this.canvases(), this.labels())));
    const { warning } = page.detail;
    // The page says once which events count. A chart only has these words as its description, for screen readers.
    this.meaning = make("p", { hidden: true, id: `${name}-meaning` }, warning);
    this.help = explained(`About: ${title}`, ...(about ? [make("p", { className: "about" }, ...[about].flat())] : []), this.note);
    this.element = make("section", { className: "card panel", id: name, "aria-labelledby": `${name}-title` },
      make("div", { className: "card-head" }, make("div", { className: "titled" }, this.heading, this.help.button), this.tools),
      this.help.box,
      ...(warning ? [this.meaning] : []),
      this.readout, this.body, this.urgent,
      make("div", { className: "card-end" }, this.details, this.saving));
    this.answer = null;
    this.measure = null; // what the answer is about
    this.asked = "";
    this.restUntil = 0;
  }

  static applies() {
    return true;
  }

  chart(options = {}, own = null) {
    const name = own === null ? this.name : this.page.place(own);
    const host = make("div", { className: "chart", id: `${name}-chart`, tabIndex: 0, role: "img", "aria-describedby": this.describedBy });
    host.classList.toggle("strip", Boolean(options.strip));
    this.body.append(host);
    const page = this.page;
    return new BandChart(host, {
      times: () => page.times,
      title: () => page.heads(this.heading.textContent),
      readout: (point) => showPoint(this.readout, point),
      speak: (text) => page.speak(text),
      ...(options.value ? {} : { gaps: () => gapsOf(page.detail), annotations: () => page.annotations, sync: "time", onZoom: (start, end) => page.zoom(start, end), onReset: () => page.zoom(null, null) }),
      ...options,
    });
  }

  // Return the ids of the texts that describe a chart of this panel to screen readers.
  get describedBy() {
    return this.page.detail.warning ? `${this.name}-meaning chart-keys` : "chart-keys";
  }

  // Request the answer and draw it. If the service refuses the request, show its message instead of the chart.
  async load() {
    try {
      const { choice, measure } = this.page;
      const answer = await this.ask(this.page);
      if (choice !== this.page.choice) return; // the reader chose something else meanwhile, so the panel is loaded again
      Object.assign(this, { answer, measure });
      this.element.classList.remove("failed");
      this.show(this.answer, this.page);
      const note = this.answer.note ?? "";
      say(this.note, note.replace(SAID_ONCE, "").replace(SHORTENED, "").trim());
      say(this.urgent, answer.urgent ?? "");
      this.help.check();
      say(this.shortened, note.match(SHORTENED)?.[0] ?? "");
      if (!this.page.detail.shape) say(this.meaning, answer.meaning ?? this.page.detail.warning);
      this.#nameParts();
      this.element.dataset.seq = String(this.answer.seq);
      this.fillTable();
    } catch (error) {
      if (error.name !== "ApiError" || error.passing) throw error;
      this.element.classList.add("failed");
      say(this.urgent, `No chart: ${error.message}.`);
    }
  }

  // Say that there is no chart yet, because the service did not answer.
  sayUnanswered() {
    if (!this.answer) say(this.urgent, "The service is busy or does not answer. This chart is asked for again.");
  }

  restyle() {
    this.band?.restyle();
  }

  fillTable() {
    if (this.details.open && this.answer) this.numbers.replaceChildren(this.table());
  }

  table() {
    return pictureTable(this.band);
  }

  canvases() {
    return [this.band.canvas];
  }

  labels() {
    return [];
  }

  csv() {
    const { lines, start, end, stderr, nodes } = this.band.picture;
    const named = (name, head) => (name ? `${head} (${name})` : head);
    const heads = [...(start ? ["start"] : []), "end", ...lines.flatMap(({ name }) => ["value", "lower", "upper"].map((head) => named(name, head)))];
    const rows = end.map((to, i) => [...(start ? [utc(start[i])] : []), utc(to), ...lines.flatMap((line) => [line.value[i], line.lower[i], line.upper[i]])]);
    if (stderr) heads.push("stderr");
    if (nodes) heads.push("nodes");
    rows.forEach((row, i) => row.push(...(stderr ? [stderr[i]] : []), ...(nodes ? [nodes[i]] : [])));
    return this.words([...heads, "private"], rows.map((row) => [...row, this.answer.private]));
  }

  caption() {
    const { page } = this;
    const { times } = page;
    const { start, end } = page.range();
    return [
      `${page.fullTitle}: ${this.heading.textContent}`,
      `${times.alone(times.period(start, end))}, released until ${times.until(page.whole().end)}. ${costs(page.detail)}`,
      "The band holds the true number with 95 % probability at each single point.",
      ...this.warnings(),
    ];
  }

  // Return the rows of a file, with a column that says what the stream counts, if it does not count every event.
  words(heads, rows) {
    const { warning } = this.page.detail;
    const { meaning, amounts } = this.answer;
    return meaning && (warning || amounts) ? [[...heads, "meaning"], rows.map((row) => [...row, meaning])] : [heads, rows];
  }

  // Return the lines of a saved picture that say what the stream counts, if it does not count every event. Each
  // sentence is a line, because a picture is narrow.
  warnings() {
    const { amounts, meaning } = this.answer;
    return (amounts ? meaning : this.page.detail.warning).match(/.+?\.(?= |$)/g)?.map((line) => line.trim()) ?? [];
  }

  file() {
    return [this.page.stream, ...this.page.keys.slice(0, 4), this.name].join("-").replace(/[^\w-]+/g, "-");
  }

  // Name the table and the buttons by the heading, which may have changed with what the panel shows.
  #nameParts() {
    this.numbers.setAttribute("aria-label", `Numbers: ${this.page.heads(this.heading.textContent)}`);
    this.help.button.setAttribute("aria-label", `About: ${this.heading.textContent}`);
    for (const button of this.saving.children) button.setAttribute("aria-label", `Save ${this.heading.textContent} as ${button.textContent}`);
  }

  #saver(name, act, title = "") {
    const button = make("button", { type: "button", title, "aria-label": `Save ${this.heading.textContent} as ${name}` }, name);
    button.addEventListener("click", async () => {
      try {
        if (this.answer) await act();
      } catch (error) {
        if (error.name !== "ApiError") throw error;
        say(this.urgent, `No file: ${error.message}.`);
      }
    });
    return button;
  }
}

// Return the data of a chart with one line, from an answer of /series.
function pictureOf(answer, page, name = "") {
  const { start, end, stderr, nodes, seq, view } = answer;
  const { numbers, counted } = page.measure;
  const used = nodes?.some(Boolean) ? nodes : null; // an approximate count is made of all of them so far
  return { start, end, stderr, nodes: used, seq, view, numbers, counted, afloat: page.measure.name === "mean", lines: [{ name, ...shown(answer, page.measure) }], levels: [], marks: page.marks };
}

// Return the columns of an answer without the points that the measure leaves out.
function shown({ value, lower, upper, inner }, { enough }) {
  if (!enough) return { value, lower, upper, inner };
  const kept = value.map((one, i) => enough({ value: one, interval: [lower[i], upper[i]] }));
  return Object.fromEntries(Object.entries({ value, lower, upper }).map(([name, column]) => [name, column.map((one, i) => (kept[i] ? one : null))]));
}

function showPoint(host, point) {
  if (!point) return host.replaceChildren();
  const parts = [`${point.newest ?? ""}${point.when}  `];
  for (const [i, { name, value, lower, upper }] of point.lines.entries()) {
    if (name) parts.push(`${i ? "· " : ""}${name} `);
    parts.push(bold(value), " ", ...(lower === null ? [] : [make("span", { className: "ends" }, `(${lower} to ${upper})`)]), "  ");
  }
  host.title = point.nodes ? `From ${point.nodes.toLocaleString("en")} released ${point.nodes === 1 ? "count" : "counts"}` : "";
  const [newest, ...others] = point.changes.toReversed();
  if (newest) parts.push(make("span", { className: "change", dataset: { kind: newest.kind } }, `  ${newest.words}`), others.length ? ` and ${others.length} more` : "");
  for (const { number, text } of point.annotations ?? []) parts.push(make("span", { className: "annotation" }, `  ${number} ${text}`));
  return host.replaceChildren(...parts);
}
return { Panel, pictureOf, showPoint };
})();

const $stream_app_api_dashboard_ranges = (() => {
// The ranges of time that a reader can choose, and how many bins each point of a chart counts. Lengths are in
// seconds.

const HOUR = 3600, DAY = 86400;
// No step is between three hours and a day, because steps of half a day mostly show that nights are quiet.
const STEPS = [1, 5, 10, 15, 30, 60, 300, 600, 900, 1800, HOUR, 3 * HOUR, DAY, 7 * DAY, 28 * DAY];
const PRESETS = [
  { name: "1 year", seconds: 365 * DAY },
  { name: "90 days", seconds: 90 * DAY },
  { name: "30 days", seconds: 30 * DAY },
  { name: "7 days", seconds: 7 * DAY },
  { name: "24 hours", seconds: DAY },
  { name: "6 hours", seconds: 6 * HOUR },
  { name: "1 hour", seconds: HOUR },
  { name: "15 minutes", seconds: 900 },
];

// What a bar can count besides bins: calendar units, as the service's steps.
const CALENDAR = { day: { days: 1 }, week: { days: 7 }, month: { months: 1 }, quarter: { months: 3 }, year: { months: 12 } };

// Return the ranges to offer: the whole stream and at most three shorter ranges of at least 12 bins.
function presets(whole, binSeconds) {
  const fitting = PRESETS.filter(
    ({ seconds }) => seconds < whole.end - whole.start && seconds >= 12 * binSeconds && seconds % binSeconds === 0,
  );
  return [{ name: "all", seconds: null }, ...fitting.slice(0, 3)];
}

// Return how many bins each point counts. Points have a familiar length of time, such as an hour, and there are at
// most ``most`` of them.
function chooseStep({ start, end }, binSeconds, most) {
  if (binSeconds === null) return [1, 7, 28].find((step) => (end - start) / (step * DAY) <= most) ?? Math.ceil((end - start) / DAY / most);
  const fits = (seconds) => seconds % binSeconds === 0 && (end - start) / seconds <= most;
  if (fits(binSeconds)) return 1;
  const chosen = STEPS.find((seconds) => seconds > binSeconds && fits(seconds));
  return chosen ? chosen / binSeconds : Math.ceil((end - start) / binSeconds / most);
}

// Return the length of the longest of some spans, at most a day: the others are cut off by the ends of a range.
const longest = (start, end) => Math.min(Math.max(...end.map((to, i) => to - start[i])), DAY);

// Return how many points fit into a chart of this width, in pixels.
const roomFor = (width) => Math.max(60, Math.min(400, width / 2.5));

// Return how many points of a curve fit there. Args: most, the largest number that the service gives.
const pointsFor = (width, most = Infinity) => Math.min(Math.round(Math.min(Math.max(width / 2, 240), 600)), most);

// Return the lengths of windows that the rate panel offers: several bins, at most half of the stream. Args: fit, of which
// they are multiples.
function windows(whole, binSeconds, fit) {
  const lengths = [60, 300, 900, HOUR, 6 * HOUR, DAY, 7 * DAY, 28 * DAY];
  return lengths.filter((seconds) => seconds % fit === 0 && seconds > binSeconds && 2 * seconds <= whole.end - whole.start).slice(0, 5);
}

// Return an instant at which a step begins. Weeks begin on Mondays, as those of the service do, if no bin begins before
// that midnight and ends after it.
function roundTime(stepSeconds, binSeconds) {
  const monday = 4 * DAY; // the first one since 1970
  return stepSeconds % (7 * DAY) === 0 && monday % binSeconds === 0 ? monday : 0;
}

// Return the whole steps of a range, from its first round time on, so that slices start at round times too.
function snapRange({ start, end }, stepSeconds, binSeconds, first) {
  if (!stepSeconds) return { start, end };
  const origin = roundTime(stepSeconds, binSeconds);
  const round = Math.ceil((start - origin) / stepSeconds) * stepSeconds + origin;
  const from = Math.max(round, first);
  const steps = Math.floor((end - from) / stepSeconds);
  return steps ? { start: from, end: from + steps * stepSeconds } : { start, end };
}
return { PRESETS, CALENDAR, presets, chooseStep, longest, roomFor, pointsFor, windows, roundTime, snapRange };
})();

const $stream_app_api_dashboard_panels_bins = (() => {
// The panel of events per bin, or per group of bins. It can also show the same range of the week before.

const { bold, make } = $stream_app_api_dashboard_elements;
const { Panel, pictureOf } = $stream_app_api_dashboard_panel;
const { CALENDAR, roomFor } = $stream_app_api_dashboard_ranges;
const { length } = $stream_app_api_dashboard_words;

// Each interval has 97.5 %, so both together hold with at least 95 %, even if their errors are correlated.
const EACH = 0.975;

class Bins extends Panel {
  constructor(page) {
    super(page, "bins", "Events per bin");
    this.band = this.chart({ stepped: true, fromZero: true, strong: page.hasStrongChart });
    this.compare = make("input", { type: "checkbox", id: page.place("compare"), checked: page.compare });
    this.compare.addEventListener("change", () => page.choose({ compare: this.compare.checked }));
    this.bars = make("select", { id: page.place("bars") }, new Option("auto", ""), ...Object.keys(CALENDAR).map((unit) => new Option(unit)));
    this.bars.addEventListener("change", () => page.choose({ bars: this.bars.value || null }));
    this.barring = make("label", { className: "picker" }, make("span", {}, "Per"), this.bars);
    this.tools.append(this.barring, make("label", { className: "check" }, this.compare, "Week before"));
    this.difference = make("p", { className: "difference", id: page.place("difference"), hidden: true });
    this.readout.after(this.difference);
    this.legend = make("p", { className: "mark-keys" }); // of changes of alerts, because their names are left out where they have no room
    this.saving.before(this.legend);
  }

  async ask(page) {
    const units = page.calendar();
    this.barring.hidden = !page.calendarZone;
    this.bars.value = units ? page.bars : "";
    const slices = units ?? page.groups(Math.min(roomFor(this.body.clientWidth), page.measure.most ?? Infinity));
    const asked = { kind: "bin", ...slices };
    const alone = !page.compare; // two bands in one chart have no inner parts
    const calendar = slices.days ? page.times.days : page.bins; // of both, weeks are whole numbers
    const possible = !units && calendar.week !== null && hasWeekBefore(calendar, slices.start, page);
    this.compare.disabled = !possible;
    this.compare.parentElement.title = possible ? "Compare with the week before" : "The stream has no such range a week before this one";
    const [answer, earlier] = await Promise.all([
      page.points({ ...asked, inner: alone }),
      possible && page.compare ? this.#earlier(page, asked, calendar) : null,
    ]);
    return { ...answer, unit: units && page.bars, earlier, note: [units ? "" : this.#leftOut(answer, page), answer.note].filter(Boolean).join(" ") };
  }

  // Return which parts of the range are not shown, because groups of bins are whole and start at round times.
  #leftOut({ start, end }, page) {
    if (!start.length) return "";
    const { times } = page;
    const range = page.range();
    const parts = [[range.start, start[0]], [end.at(-1), range.end]].filter(([from, to]) => from < to);
    const one = length((end[0] - start[0]));
    return parts.length ? `Not drawn, because shorter than ${one.replace(/^(?=[a-z])/, "one ")}: ${parts.map(([from, to]) => times.period(from, to)).join("; ")}.` : "";
  }

  async #earlier(page, asked, calendar) {
    const { start, end } = asked;
    const before = { start: weekBefore(calendar, start), end: weekBefore(calendar, end) };
    const [series, now, then] = await Promise.all([
      page.points({ ...asked, ...before }),
      page.ask(page.measure.single, { start, end, confidence: EACH }),
      page.ask(page.measure.single, { ...before, confidence: EACH }),
    ]);
    return { series, now, then, calendar };
  }

  show(answer, page) {
    const { binSeconds } = page;
    const { unit } = answer;
    const step = answer.days ? answer.days * 86400 / binSeconds : answer.step;
    this.heading.textContent = `${page.measure.title} per ${unit ?? length(step * page.bins.length)}`;
    const picture = pictureOf(answer, page, answer.earlier ? "now" : "");
    picture.levels = page.levels(({ measure, window_bins: bins }) => measure === "sum" && bins === step);
    if (answer.earlier) picture.lines.push(this.#line(answer));
    const shown = unit ? 86400 : step === 1 || binSeconds === null ? binSeconds : Math.min(step * binSeconds, 86400);
    this.band.show(picture, shown, page.domain());
    const { start, end } = page.domain();
    const kinds = new Set(picture.marks.filter(({ at }) => at >= start && at <= end).map(({ kind }) => kind));
    this.legend.replaceChildren(...[...kinds].map((kind) => make("span", { dataset: { kind } }, kind)));
    this.difference.hidden = !answer.earlier;
    if (answer.earlier) this.difference.replaceChildren(...inWords(answer.earlier, page.measure));
  }

  // Return the week before as a line that is moved forward by a week. Bins that were not measured stay empty.
  #line({ start, earlier: { series, calendar } }) {
    const places = new Map(series.start.map((edge, i) => [calendar.of(edge) + calendar.week, i]));
    const column = (values) => start.map((edge) => values[places.get(calendar.of(edge))] ?? null);
    return { name: "week before", quiet: true, dash: true, value: column(series.value), lower: column(series.lower), upper: column(series.upper) };
  }
}

// Return whether the stream has the week before, in bins that the same steps fit.
function hasWeekBefore(calendar, start, page) {
  const before = weekBefore(calendar, start);
  return before >= page.whole().start && page.binFrom(before) === page.binFrom(start);
}

// Return the instant a week before the start of a bin or a day. Args: calendar, of bins or days.
const weekBefore = (calendar, edge) => calendar.start(calendar.of(edge) - calendar.week);

// Return the difference of two ranges in words. Args: now and then, the chosen range and the same one a week before.
function inWords({ now, then }, measure) {
  if ([now, then].some((one) => measure.enough?.(one) === false)) return ["Too few events for a mean, here or a week before."];
  const { numbers: { value, between }, more, fewer } = measure;
  const difference = now.value - then.value;
  const low = now.interval[0] - then.interval[1], high = now.interval[1] - then.interval[0];
  const [least, most] = between(Math.min(Math.abs(low), Math.abs(high)), Math.max(Math.abs(low), Math.abs(high)));
  const verdict = low > 0 ? [`${more} by ${least} to ${most}`] : high < 0 ? [`${fewer} by ${least} to ${most}`]
    : [`no difference is certain: between ${between(low, high).join(" and ")}`];
  const what = measure.name === "count" ? ` ${now.counted} here, ` : " here, ";
  return [bold(value(now.value, now.interval)), what, bold(value(then.value, then.interval)), " in the same range a week before: ",
    `${difference >= 0 ? "+" : "−"}${value(Math.abs(difference), [low, high])}, `, ...verdict, " (95 %)."];
}
return { Bins };
})();

const $stream_app_api_dashboard_panels_cdf = (() => {
// The panel of the value's distribution in the chosen range: cumulative counts, and one band for all of them.

const { make } = $stream_app_api_dashboard_elements;
const { Panel } = $stream_app_api_dashboard_panel;
const { amount, beyond, count } = $stream_app_api_dashboard_words;

class Cdf extends Panel {
  constructor(page) {
    super(page, "cdf", "Distribution", `${page.noun} with a value up to each point. The band holds the whole true curve at once with 95 % probability. The line is the nearest curve of whole numbers in the band that never falls. Choose a range of time above, or by drag over any chart of time.`);
    this.band = this.chart({ value: true, counted: page.noun, across: "Value" });
    this.range = make("p", { className: "muted" });
    this.tools.append(this.range);
  }

  static applies(page) {
    return Boolean(page.detail.axes?.edges);
  }

  async ask(page) {
    return { ...await page.ask("cdf", page.range()), note: beyond(page.detail.axes.edges) };
  }

  show(answer, page) {
    const { upto, consistent, lower, upper, seq } = answer;
    const { start, end } = page.range();
    this.heading.textContent = `Distribution of ${page.field}`;
    this.range.textContent = page.times.onPage(page.times.period(start, end));
    const lines = [{ name: "", value: consistent, lower, upper }];
    this.band.show({ start: null, end: upto, lines, seq }, null, { start: page.detail.axes.edges[0], end: upto[upto.length - 1] });
  }

  csv() {
    const { upto, value, lower, upper, stderr, consistent } = this.answer;
    const rows = upto.map((edge, i) => [edge, value[i], stderr[i], lower[i], upper[i], consistent[i], this.answer.private]);
    return this.words(["upto", "value", "stderr", "lower", "upper", "consistent", "private"], rows);
  }

  caption() {
    const [title, range] = super.caption();
    const last = this.answer.consistent.length - 1;
    const { noun } = this.page.detail;
    return [title, range, `One band for the whole curve, 95 %. ${count(this.answer.consistent[last])} ${noun} up to ${amount(this.answer.upto[last])}.`, ...this.warnings()];
  }
}
return { Cdf };
})();

const $stream_app_api_dashboard_annotations = (() => {
// Annotations: texts beside times of charts, which the operator has written. Each has a number; charts show the number,
// and a list below them the text.

const { make } = $stream_app_api_dashboard_elements;
const { seconds } = $stream_app_api_dashboard_times;

// Return annotations by time, each with its number and its times in seconds. Args: as the service answers them.
function numbered(annotations = []) {
  return annotations
    .map(({ start, end, text, link }) => ({ start: seconds(start), end: end === null ? null : seconds(end), text, link }))
    .sort((one, other) => one.start - other.start)
    .map((one, i) => ({ ...one, number: i + 1 }));
}

// List annotations for readers. Args: annotations, numbered; times, which write their instants.
function listAnnotations(host, annotations, times) {
  const said = JSON.stringify([annotations, times?.zone]);
  host.hidden = !annotations.length;
  if (host.dataset.said === said) return; // or a link that has the focus would lose it
  host.dataset.said = said;
  host.replaceChildren(...annotations.map((one) => make("li", { value: one.number },
    `${times.onPage(one.end === null ? times.moment(one.start) : times.period(one.start, one.end))}: `,
    one.link ? make("a", { href: one.link, rel: "noopener noreferrer", target: "_blank" }, one.text) : one.text)));
}
return { numbered, listAnnotations };
})();

const $demo_page_source_api = (() => {
// In place of the dashboard's api.js: the same functions, which answer from a recording instead of a service.

class ApiError extends Error {
  name = "ApiError";
  passing = false;
}

let answers = {}; // of each stream, by path

// Choose what is known from now on: what a recording has released by the end of a day.
function moveTo(recording, day) {
  answers = { departures: recording.departuresUntil(day), delays: recording.delaysUntil(day) };
}

const streamPath = (stream) => `/v1/streams/${stream}`;

async function get(path, query = {}) {
  const [stream, asked = ""] = path.replace("/v1/streams/", "").split("/");
  const answer = answers[stream]?.[asked];
  if (!answer) throw new ApiError("This page has no recorded answer to that; the service has.");
  return answer(query);
}
return { ApiError, moveTo, streamPath, get };
})();

const $stream_app_api_dashboard_key_choice = (() => {
// What a reader has chosen of a stream's keys. A stream has one field of keys, or several: a key of the fields country
// and device is "FR/mobile", and "FR/*" means all keys of FR. In a value "/" is written "\/", and "\" is written "\\";
// the value "*" is written "\*".

// Return the fields of the keys: {field, values} each, with the number of its values. A stream with one field has one
// entry, without a name. Args: axes, of the answer of /v1/streams/{s}.
const fieldsOf = (axes) => axes?.key_fields ?? (axes?.keys ? [{ field: "", values: axes.keys }] : []);

// Return the chosen values of each field, in the order of the choice; an empty list means any value.
function chosenOf(axes, keys) {
  const parts = keys.map((key) => partsOf(axes, key));
  return fieldsOf(axes).map((_, i) => [...new Set(parts.map((one) => one[i]))].filter((value) => value !== null));
}

// Return the keys to ask for. Args: chosen, as ``chosenOf`` returns it.
function keysOf(axes, chosen) {
  if (chosen.every((values) => !values.length)) return [];
  if (!axes.key_fields) return chosen[0];
  const columns = chosen.map((values) => (values.length ? values.map(escaped) : ["*"]));
  return columns.reduce((begun, column) => begun.flatMap((one) => column.map((part) => [...one, part])), [[]]).map((one) => one.join("/"));
}

// Return the value that a pattern has in a field, for the keys of one value: "FR" for "FR/*".
const valueOf = (axes, key, field) => partsOf(axes, key)[fieldsOf(axes).findIndex((one) => one.field === field)];

// Return whether a key is a pattern, which means several keys.
const isPattern = (axes, key) => partsOf(axes, key).includes(null);

// Return the name of the chosen keys, such as "FR + DE", or "country: FR + DE, device: mobile"; empty for all keys.
// Args: most, the largest number of values of a field that are named.
function nameOf(axes, keys, most) {
  const fields = fieldsOf(axes);
  if (fields.length < 2) return joined(keys, most);
  const chosen = chosenOf(axes, keys);
  if (keysOf(axes, chosen).length !== keys.length) return joined(keys, most); // keys from an address that are no product
  return fields.flatMap(({ field }, i) => (chosen[i].length ? [`${field}: ${joined(chosen[i], most)}`] : [])).join(", ");
}

function joined(names, most) {
  const named = names.length > most ? names.slice(0, most - 1) : names;
  return [...named, ...(named.length < names.length ? [`${names.length - named.length} more`] : [])].join(" + ");
}

const escaped = (value) => (value === "*" ? "\\*" : value.replace(/[\\/]/g, "\\$&"));

// Return a key's values, one for each field; null for any value.
function partsOf(axes, key) {
  if (!axes?.key_fields) return [key];
  return (key.match(/(?:\\.|[^\\/])+/g) ?? []).map((part) => (part === "*" ? null : part.replace(/\\(.)/g, "$1")));
}
return { fieldsOf, chosenOf, keysOf, valueOf, isPattern, nameOf };
})();

const $stream_app_api_dashboard_measures = (() => {
// What the charts of a stream show: the number of its events; and if the stream adds up an amount, its total and its mean.

const { COUNTS, decimals, places, sentence } = $stream_app_api_dashboard_words;

const MOST_MEANS = 100; // points of a chart; the service takes some milliseconds for each mean

// Return the measures of a stream, the one of its headline first. Args: the answer of /v1/streams/{s}.
// A measure has: name, as in the address; title, for the control and the beginning of headings; running, a heading;
// counted, what columns of its values are called; numbers, how to write values; single, series and keys, the paths of
// the service's answers. It may have: rates, whether a value per time has a meaning; most, the largest number of points;
// enough(one), whether the events are enough for a value {value, interval}.
function measuresOf(detail) {
  if (!known.has(detail)) known.set(detail, detail.sum ? [total(detail.sum), mean(detail.sum), events(detail)] : [events(detail)]);
  return known.get(detail);
}
const known = new WeakMap();

function events({ noun, counts }) {
  return {
    name: "count", title: sentence(noun), running: counts === "users" ? "Running count, summed over epochs" : "Running count", counted: "Count",
    numbers: COUNTS, single: "count", series: "series", keys: "keys", rates: true, more: "more", fewer: "fewer",
  };
}

function total({ field, unit }) {
  return {
    name: "sum", title: `Total ${field}`, running: `Running total of ${field}`, counted: "Total",
    numbers: decimals(places(unit)), single: "sum", series: "sum/series", keys: "sum/keys", rates: true, more: "higher", fewer: "lower",
  };
}

// A mean of few events says nothing, and is often far from every other point of a chart. So a mean is shown only if
// its interval is at most a quarter as wide as the range of the amounts.
function mean({ field, unit, min, max }) {
  const fine = Math.max(places(unit), Math.min(2, 2 - Math.floor(Math.log10(unit))), 0);
  return {
    name: "mean", title: `Mean ${field}`, running: `Running mean of ${field}`, counted: "Mean",
    numbers: { ...decimals(fine), none: "too few events" }, single: "mean", series: "mean/series", keys: "mean/keys", most: MOST_MEANS, more: "higher", fewer: "lower",
    enough: ({ value, interval: [low, high] }) => value !== null && high - low <= (max - min) / 4,
  };
}
return { measuresOf };
})();

const $stream_app_api_dashboard_zone = (() => {
// The reader's choice of a time zone. The address of a page holds it, and the browser remembers it for other pages.

const KEY = "timezone";

// Return the chosen time zone; null if the reader chose none, or one that the browser does not know.
function chosenZone(location = window.location.href) {
  const asked = new URL(location).searchParams.get("tz") ?? remembered();
  return asked && isZone(asked) ? asked : null;
}

// Return the zone that the browser remembers. A page in a frame of another site may have no storage.
function remembered() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

const rememberZone = (zone) => localStorage.setItem(KEY, zone);

// Return the time zones to offer: UTC, that of this browser, and others that are in use. Each is there once.
function offeredZones(others) {
  return [...new Set(["UTC", new Intl.DateTimeFormat().resolvedOptions().timeZone, ...others])].filter(isZone);
}

function isZone(name) {
  try {
    return Boolean(new Intl.DateTimeFormat("en", { timeZone: name }));
  } catch {
    return false;
  }
}
return { chosenZone, rememberZone, offeredZones, isZone };
})();

const $stream_app_api_dashboard_state = (() => {
// The reader's choices on a stream's page, and values that follow from them. The address of the page contains the
// choices, so a copied address shows the same page.

const { numbered } = $stream_app_api_dashboard_annotations;
const { get, streamPath } = $demo_page_source_api;
const { commonBin, edgesAround, hasOtherBins } = $stream_app_api_dashboard_earlier_bins;
const { isPattern, nameOf } = $stream_app_api_dashboard_key_choice;
const { measuresOf } = $stream_app_api_dashboard_measures;
const { CALENDAR, chooseStep, presets, snapRange } = $stream_app_api_dashboard_ranges;
const { seconds, timesOf, utc } = $stream_app_api_dashboard_times;
const { count } = $stream_app_api_dashboard_words;
const { chosenZone, rememberZone } = $stream_app_api_dashboard_zone;

const DAY = 86400;
const VIEWS = ["unbiased", "first_published", "consistent"];

class StreamPage {
  // Args: speak(text), passes a text to screen readers; changed(chosen), is called when the reader chose something.
  constructor(location, { speak, changed }) {
    const asked = new URL(location).searchParams;
    const number = (name) => (asked.has(name) && Number.isFinite(Number(asked.get(name))) ? Number(asked.get(name)) : null);
    this.lookedUp = null; // the promise of the stream for which its keys were looked up
    this.asked = asked; // what the address asks for; null once the reader has chosen something
    this.stream = decodeURIComponent(new URL(location).pathname.split("/")[2] ?? "");
    this.speak = speak;
    this.changed = changed;
    this.detail = null; // the answer of /v1/streams/{s}
    this.alerts = [];
    this.transitions = []; // changes of alert rules, oldest first
    this.transitionsKept = 0; // the largest number of changes that the service keeps
    this.seq = 0;
    this.preset = asked.get("range") ?? "all";
    this.closer = readRange(asked.get("from"), asked.get("to"));
    this.view = VIEWS.includes(asked.get("view")) ? asked.get("view") : "unbiased";
    this.keys = asked.getAll("key"); // the chosen keys; none: all keys together
    this.by = asked.get("by"); // the key field by which the panel of keys groups; "*": each combination
    this.show = asked.get("show"); // what the charts show, if the stream has a sum
    this.compare = asked.get("compare") === "1";
    this.bars = asked.get("bars"); // the calendar unit of each bar, of CALENDAR; others: a length that fits the range
    this.window = number("window");
    this.ending = asked.get("ending"); // end of the chosen tumbling window; null: the last window in the range
    this.histogram = asked.get("of"); // name of the chosen histogram of that window
    this.cumulative = asked.get("curve") === "cumulative";
    this.epsilon = number("epsilon");
    this.zone = chosenZone(location); // null: the one that the service shows by default
  }

  get binSeconds() {
    return this.detail.bin_seconds;
  }

  // Return the object that writes instants as text.
  get times() {
    return timesOf(this.detail, this.zone ?? this.detail.display_timezone);
  }

  // Return the object that converts between instants and bins.
  get bins() {
    return this.times.bins;
  }

  // Return the name of the stream for readers.
  get title() {
    return this.detail?.title ?? this.stream;
  }

  // Return the name of the stream for readers, with the chosen keys.
  get fullTitle() {
    return [this.title, this.group()].filter(Boolean).join(" · ");
  }

  // Return the name of the chosen keys; empty for all keys. Args: most, the largest number of values that are named.
  group(most = 3) {
    return nameOf(this.detail?.axes, this.keys, most);
  }

  // Return what the charts show: of a stream with a sum its total, mean or count.
  get measures() {
    return measuresOf(this.detail);
  }

  get measure() {
    return this.measures.find(({ name }) => name === this.show) ?? this.measures[0];
  }

  // Return a text that differs for choices that show other numbers.
  get choice() {
    return JSON.stringify([this.keys, this.measure.name, this.view, this.preset, this.closer]);
  }

  // Return whether all values stay as they were first published.
  get neverRevised() {
    return this.detail.never_revised;
  }

  // Return the name of the stream's value.
  get field() {
    return this.detail.axes?.value_field ?? "value";
  }

  // Return what charts count, as a heading begins with it: "Events".
  get noun() {
    return this.detail.noun.replace(/^./, (letter) => letter.toUpperCase());
  }

  whole() {
    const { start, released_until: until, history } = this.detail;
    const first = this.keys.length && history ? history[0].start : start; // chosen keys may have counts before the total
    return { start: seconds(first), end: seconds(until) };
  }

  // Return whether the page has one chart that is higher than the others.
  get hasStrongChart() {
    return true;
  }

  // Return whether the chosen range is only a part of the stream.
  get isPart() {
    const [whole, { start, end }] = [this.whole(), this.range()];
    return start > whole.start || end < whole.end;
  }

  range() {
    const { start, end } = this.#chosenRange();
    return hasOtherBins(this.detail) ? { start: this.edges(start)[0], end: this.edges(end)[1] } : { start, end };
  }

  // Return the edges of bins around an instant, also of earlier streams with other bins.
  edges(at) {
    return edgesAround(this.detail, this.bins, at);
  }

  // Return the shortest time that fits all bins from an instant on, in seconds; null for calendar days.
  binFrom(start) {
    return commonBin(this.detail, start).length;
  }

  // Return the time of which windows are multiples, in seconds: it fits all bins of the chosen range.
  get windowBin() {
    return this.binFrom(this.range().start) ?? DAY;
  }

  #chosenRange() {
    const whole = this.whole();
    if (this.closer) {
      const [start, end] = [Math.max(this.closer[0], whole.start), Math.min(this.closer[1], whole.end)];
      if (start < end) return { start, end };
    }
    const preset = presets(whole, this.bins.length).find((one) => one.name === this.preset);
    if (!preset?.seconds) return whole;
    return { start: Math.max(this.before(whole.end, preset.seconds / this.bins.length), whole.start), end: whole.end };
  }

  // Return the instant that is a number of bins before the start of a bin.
  before(edge, bins) {
    return this.bins.start(this.bins.of(edge) - bins);
  }

  // Return the range and a step, in bins, for the service to divide it into slices that start at round times. The
  // slices cover the whole range; the first and the last may be shorter. Args: the largest number of slices.
  slices(most) {
    const range = this.range();
    const { length: bin, zone } = commonBin(this.detail, range.start);
    const step = chooseStep(range, bin, most);
    if (bin === null) return { ...range, days: step, timezone: zone };
    const bins = step * bin / this.binSeconds;
    return this.#inDays(range, bins) ?? { ...range, step: bins, aligned: true };
  }

  // Return the time zone of the calendar units that bars can count; null if its days begin inside bins.
  get calendarZone() {
    if (this.binSeconds === null || this.hasWholeDays(this.range())) return this.times.zone;
    return DAY % this.binSeconds ? null : "UTC";
  }

  // Return the range in the calendar units that the reader chose; null for a length that fits the range.
  calendar() {
    const step = Object.hasOwn(CALENDAR, this.bars ?? "") ? CALENDAR[this.bars] : null;
    return step && this.calendarZone ? { ...this.range(), ...step, timezone: this.calendarZone } : null;
  }

  // Return a range and a step, in bins, that divide it into equal groups, which start at round times. The range may be
  // a little shorter than the chosen one. Args: the largest number of groups.
  groups(most) {
    const range = this.range();
    const { length: bin, zone } = commonBin(this.detail, range.start);
    if (bin === null && this.binSeconds !== null) return { ...range, days: chooseStep(range, null, most), timezone: zone };
    const step = chooseStep(range, bin, most) * (bin === null ? 1 : bin / this.binSeconds);
    const days = this.measure.name === "count" ? this.#wholeDays(range) : null; // sums and means have groups of bins only
    return this.#inDays(days, step) ?? { ...snapRange(range, step * (this.binSeconds ?? 0), bin, this.whole().start), step };
  }

  // Return a range and a number of days of the reader's time zone, in place of a step of whole days of UTC. Return
  // null if the step is shorter than a day, or a day there begins inside a bin.
  #inDays(range, step) {
    const length = step * (this.binSeconds ?? 0);
    if (!range || !length || length % DAY || !this.hasWholeDays(range)) return null;
    return { ...range, days: length / DAY, timezone: this.times.zone };
  }

  // Return whether every day of the reader's time zone that begins within a range begins at the edge of a bin.
  hasWholeDays(range) {
    return this.times.hasWholeDays(range, (at) => this.edges(at)[0]);
  }

  // Return the whole days of a range; null if there are none.
  #wholeDays({ start, end }) {
    const { days } = this.times;
    if (!days) return null;
    const [first, last] = [days.of(start), days.of(end)];
    const from = days.start(first) === start ? start : days.start(first + 1);
    return from < days.start(last) ? { start: from, end: days.start(last) } : null;
  }

  // Return the ends of the charts' axis of time.
  domain() {
    return this.range();
  }

  // Return the id of a part of the page.
  place(name) {
    return name;
  }

  // Return the name of a chart for screen readers. Args: title, its heading.
  heads(title) {
    return title;
  }

  // Return the texts beside times that the operator has written.
  get annotations() {
    return numbered(this.detail.annotations);
  }

  async ask(path, query) {
    return get(`${streamPath(this.stream)}/${path}`, { key: this.keys, ...query });
  }

  // Request points of what the charts show. Args: the query of /series, without the view; inner, of a mean left out.
  async points({ inner, ...query }) {
    const { measure, view } = this;
    if (measure.name === "count") return this.ask(measure.series, { ...query, view, inner });
    const answer = await this.ask(measure.series, measure.name === "sum" ? { ...query, inner } : query);
    return { ...answer, note: `${answer.meaning} ${answer.note}` };
  }

  // Return the alert rules about what is shown: counts, totals or means, of all events or of exactly the chosen keys.
  get rules() {
    const chosen = new Set(this.keys);
    const about = (measure) => ({ total: "sum", mean: "mean" })[measure] ?? "count";
    const { axes } = this.detail;
    const allBut = (others) => !others.some((key) => chosen.has(key) || isPattern(axes, key)) && chosen.size + others.length === axes.keys;
    const exactly = (keys) => keys.length === chosen.size && keys.every((key) => chosen.has(key));
    const fits = ({ keys, not_keys: others }) => (others.length ? allBut(others) : exactly(keys));
    return this.alerts.filter((one) => about(one.measure) === this.measure.name && fits(one));
  }

  // Return the changes of these rules as marks for charts over time.
  get marks() {
    const shown = new Set(this.rules.map(({ rule }) => rule));
    return this.transitions.filter(({ rule }) => shown.has(rule)).map(({ at, rule, kind }) => ({ at, name: rule, kind }));
  }

  // Return the thresholds of these rules for a chart. Args: fits(rule), whether the chart can show the rule's
  // threshold; scale, converts events to the chart's unit.
  levels(fits, scale = 1) {
    return this.rules.filter((one) => one.threshold_events !== null && fits(one)).map((one) => level(one, one.threshold_events * scale));
  }

  choose(chosen) {
    this.asked = null;
    if ("closer" in chosen) this.ending = null;
    if ("zone" in chosen) rememberZone(chosen.zone);
    Object.assign(this, chosen);
    this.#settleView();
    this.remember();
    this.changed(chosen);
  }

  // Take a new answer of /v1/streams/{s}. Leave out keys that the stream does not have.
  async take(detail) {
    const { axes, windows, strategy_hash: promised } = detail;
    if (promised !== this.lookedUp) {
      const histogram = this.histogram === null ? [] : [this.histogram];
      [this.keys, [this.histogram = null]] = await Promise.all([this.#known(axes, this.keys), this.#known(windows, histogram)]);
    }
    this.lookedUp = promised;
    this.detail = detail;
    this.#settleView();
  }

  // Return those of some names that the stream has. Args: listed, with the number of its keys.
  async #known(listed, names) {
    return listed?.keys && names.length ? (await this.ask("keys/list", { key: names })).keys : [];
  }

  // Values as first published exist for the count of all keys together only.
  #settleView() {
    if ((this.keys.length || this.measure.name !== "count") && this.view === "first_published") this.view = "unbiased";
  }

  // Show only a part of the range. With null, show the range that the reader chose before.
  zoom(start, end) {
    if (start === null) return this.closer && this.choose({ closer: null });
    return this.choose({ closer: this.#widened(this.#onEdges(start, end)) });
  }

  remember() {
    const url = new URL(window.location.href);
    const put = (name, value) => (value === null || value === "" ? url.searchParams.delete(name) : url.searchParams.set(name, value));
    const instant = (at) => utc(at).replace(/\.000Z$/, "Z");
    put("range", this.preset === "all" ? null : this.preset);
    put("from", this.closer && instant(this.closer[0]));
    put("to", this.closer && instant(this.closer[1]));
    put("view", this.view === "unbiased" ? null : this.view);
    url.searchParams.delete("key");
    this.keys.forEach((key) => url.searchParams.append("key", key));
    put("by", this.by);
    put("show", this.measure === this.measures[0] ? null : this.measure.name);
    put("compare", this.compare ? "1" : null);
    put("bars", Object.hasOwn(CALENDAR, this.bars ?? "") ? this.bars : null);
    put("window", this.window);
    put("ending", this.ending);
    put("of", this.histogram);
    put("curve", this.cumulative ? "cumulative" : null);
    put("epsilon", this.epsilon);
    put("tz", this.zone === this.detail.display_timezone ? null : this.zone);
    window.history.replaceState(null, "", url);
  }

  #onEdges(start, end) {
    const { bins } = this;
    const [first, last] = [bins.of(start), bins.of(end)];
    return [bins.start(first), bins.start(last) < end ? bins.start(last + 1) : end];
  }

  #widened([start, end]) {
    const { start: first, end: last } = this.whole();
    if (this.bins.of(end) - this.bins.of(start) >= 2) return [start, end];
    return [Math.max(this.before(start, 2), first), Math.min(this.before(start, -2), last)];
  }
}

function level({ rule, comparison }, value) {
  const short = `${comparison} ${Number.isInteger(value) ? count(value) : +value.toPrecision(4)}`;
  return { value, name: `${rule}: ${short}`, short };
}

function readRange(from, to) {
  const [start, end] = [seconds(from ?? ""), seconds(to ?? "")];
  return start < end ? [start, end] : null;
}
return { StreamPage, level };
})();

const $stream_app_api_dashboard_panels_quantiles = (() => {
// The panel of the value's quantiles over time. Each point is about the events of one slice of time; its interval
// comes from the band around their CDF.

const { Panel } = $stream_app_api_dashboard_panel;
const { longest } = $stream_app_api_dashboard_ranges;
const { level } = $stream_app_api_dashboard_state;
const { AMOUNTS, beyond } = $stream_app_api_dashboard_words;

const SLICES = 32, WANTED = [0.5, 0.9];
const NUMBERS = { ...AMOUNTS, none: "too few events" };
const NAMES = { 0.5: "median", 0.9: "90 % below" };

class Quantiles extends Panel {
  constructor(page) {
    super(page, "quantiles", "Quantiles over time");
    this.band = this.chart({ stepped: true, numbers: NUMBERS, counted: "Value" });
  }

  static applies(page) {
    return Boolean(page.detail.axes?.edges);
  }

  async ask(page) {
    const answer = await page.ask("quantiles", { ...page.slices(SLICES), q: WANTED });
    const isPartly = answer.quantiles.some((one) => one.value.some((_, i) => !tells(one, i, page)));
    return { ...answer, note: [answer.note, isPartly ? "A line has gaps where a slice has too few events to tell." : "", beyond(page.detail.axes.edges)].filter(Boolean).join(" ") };
  }

  show(answer, page) {
    const { start, end, seq, quantiles } = answer;
    const lines = quantiles.map((one, place) => {
      const told = (column) => column.map((value, i) => (tells(one, i, page) ? value : null));
      return { name: NAMES[one.q], value: told(one.value), lower: told(one.lower), upper: told(one.upper), quiet: place > 0 };
    });
    this.heading.textContent = `Quantiles of ${page.field}`;
    const bin = end.length ? longest(start, end) : page.binSeconds;
    const levels = page.rules.filter((one) => one.measure === "quantile" && WANTED.includes(one.level)).map((one) => level(one, one.threshold));
    this.band.show({ start, end, seq, lines, levels, marks: page.marks, numbers: NUMBERS }, bin, page.domain());
  }
}

// Return whether a quantile of a slice tells anything: its interval is smaller than the whole axis of values.
function tells({ value, lower, upper }, i, { detail: { axes: { edges } } }) {
  return value[i] !== null && (lower[i] > edges[0] || upper[i] < edges.at(-1));
}
return { Quantiles };
})();

const $stream_app_api_dashboard_panels_running = (() => {
// The panel of the running count. A second chart below it shows the interval around the estimate.

const { make } = $stream_app_api_dashboard_elements;
const { Panel, pictureOf, showPoint } = $stream_app_api_dashboard_panel;
const { pointsFor } = $stream_app_api_dashboard_ranges;
const { COUNTS, error } = $stream_app_api_dashboard_words;

class Running extends Panel {
  constructor(page) {
    super(page, "running", page.detail.counts === "users" ? "Running count, summed over epochs" : "Running count", "The small chart shows the band alone: how far the true number may lie above or below.");
    this.band = this.chart();
    const readout = make("p", { className: "readout", id: page.place("band-readout") });
    this.body.append(make("div", { className: "card-head strip-head" }, make("h3", {}, "Its band"), readout));
    this.strip = this.chart({
      strip: true,
      numbers: { ...COUNTS, value: error },
      title: () => page.heads("Band of the running count"),
      readout: (point) => showPoint(readout, point),
    }, "band");
  }

  async ask(page) {
    return page.points({ kind: "running", inner: true, ...page.range(), points: pointsFor(this.body.clientWidth, page.measure.most) });
  }

  show(answer, page) {
    // Beside a part, the count is still of everything since the stream began, as the headline's second number is.
    this.heading.textContent = page.isPart ? `${page.measure.running} since ${page.times.onPage(page.times.from(page.whole().start))}` : page.measure.running;
    const picture = pictureOf(answer, page);
    // A rule's running count begins with this stream, and the chart with the first one that it continues.
    picture.levels = page.detail.history ? [] : page.levels(({ measure }) => measure === "count");
    this.band.show(picture, page.binSeconds, page.domain());
    const { value, lower, upper, inner } = picture.lines[0];
    const from = (column) => column.map((end, i) => (end === null ? null : end - value[i]));
    const around = { name: "", half: true, value: value.map((one) => (one === null ? null : 0)), lower: from(lower), upper: from(upper), inner };
    const strip = { ...picture, numbers: undefined, counted: undefined, nodes: null, levels: [], beside: picture.levels, marks: [], lines: [around] };
    this.strip.show(strip, page.binSeconds, page.domain());
  }

  restyle() {
    super.restyle();
    this.strip.restyle();
  }

  canvases() {
    return [this.band.canvas, this.strip.canvas];
  }
}
return { Running };
})();

const $stream_app_api_dashboard_privacy = (() => {
// The panel that says what is protected. All of its sentences come from the service.

const { at, facts, make, say } = $stream_app_api_dashboard_elements;
const { grid } = $stream_app_api_dashboard_tables;
const { seconds } = $stream_app_api_dashboard_times;

// Args: times, of this page's stream. They are also used for other streams in the ledger of the same source.
function showPrivacy(privacy, times) {
  // The page leads with the unit of this stream: other streams over its source may protect something smaller.
  const { promise, own_promise: own, whole_user: wholeUser, total } = privacy;
  at("promise").replaceChildren(...withPowers(own || promise));
  at("promise-line").hidden = false;
  at("protects").replaceChildren(...(privacy.private ? ["No reader can be sure whether ", make("b", {}, protectedUnit(privacy)), " was counted"] : ["Protects nobody"]));
  const together = own ? `All streams over this source together: ${promise.replace(/^./, (letter) => letter.toLowerCase())}` : "";
  const next = total?.spent ? "" : privacy.next_epoch; // of the promise that the page leads with
  const others = own ? [next, together, privacy.also] : [privacy.also, next];
  at("also").replaceChildren(...withPowers([wholeUser, ...others, total?.sentence].filter(Boolean).join(" ")));
  at("spent").hidden = !total?.spent;
  at("spent").textContent = total?.spent ? total.sentence : "";
  showList(at("protected"), privacy.protected);
  showList(at("not-protected"), privacy.not_protected);
  const { max_odds_factor: factor, composed, source_epsilon: summed, source_delta: summedDelta } = privacy;
  const isAlone = privacy.epsilon === summed && privacy.delta === summedDelta;
  facts(at("privacy-numbers"), [
    ["Epsilon of this stream", withDelta(privacy.epsilon, privacy.delta)],
    ...(isAlone ? [] : [["All streams over this source together", withDelta(summed, summedDelta)]]),
    ...(composed.epsilon === summed ? [] : [["The same, for those who accept a delta", withDelta(composed.epsilon, composed.delta)]]),
    ...(privacy.source_delta === null ? [oddsWords(factor)] : []),
    ...(total ? [["Total of all epochs", withDelta(total.epsilon, total.delta)], ["Epochs left", total.epochs_left ?? "any number"]] : []),
    ["Unit of this stream", unitWords(privacy)],
    ...neighbourWords(privacy),
  ]);
  at("ledger").replaceChildren(
    grid(`Source: ${privacy.source}. Periods in ${times.zone}.`, ["Stream", "Epoch", "From", "To", "Epsilon", "Unit"],
      privacy.ledger.map((row) => [row.stream, row.epoch, times.from(seconds(row.start), null), times.until(seconds(row.end), null), withDelta(row.epsilon, row.delta), row.unit])),
  );
}

function withDelta(epsilon, delta) {
  return delta === null ? epsilon : `${epsilon} (delta ${delta})`;
}

function oddsWords(factor) {
  return ["Odds change at most", factor === null ? "without limit" : `× ${factor < 100 ? factor.toFixed(2) : Math.round(factor).toLocaleString("en")}`];
}

// Return the nodes of a sentence in which "e^0.5" is shown as a power.
function withPowers(text) {
  return text.split(/(?<=\be)\^([\d/.]*\d)/).map((part, i) => (i % 2 ? make("sup", {}, part) : part));
}

const protectedUnit = ({ unit, per }) => (per === null ? `one ${unit}` : `one user within one ${per}`);

function unitWords({ unit, per, max_events: most, max_keys: keys, max_per_key: ofKey }) {
  if (most === null) return `one ${unit}`;
  const inKeys = keys === null ? "" : `, at most ${ofKey.toLocaleString("en")} in ${keys === 1 ? "1 key" : `each of at most ${keys.toLocaleString("en")} keys`}`;
  const counted = `at most ${most.toLocaleString("en")} ${most === 1 ? "event counts" : "events count"}`;
  if (per !== null) return `one user within one ${per}, of whom ${counted}${inKeys}`;
  return `one ${unit}, of whom ${counted} in an epoch${inKeys}`;
}

// Return the two logs that the promise compares. Other streams over the source may protect something else.
function neighbourWords({ neighbouring, own_neighbouring: own }) {
  if (own === neighbouring) return [["The promise compares", own]];
  return [["For this stream, the promise compares", own], ["For the sum, it compares", neighbouring]];
}

function showList(host, lines) {
  host.replaceChildren(...lines.map((line) => make("li", {}, line)));
}
return { showPrivacy };
})();

const $demo_page_source_player = (() => {
// Moves through the days of the year: play, pause, speed and a slider.

const { at, say } = $stream_app_api_dashboard_elements;

class Player {
  // Args: first and last, days since the start of the year; word(day), its date; show(day), draws the page as of the
  // end of a day, and returns when that is done.
  constructor({ first, last, word, show }) {
    Object.assign(this, { first, last, word, show, day: last, playing: false, drawing: null, wanted: null });
    Object.assign(at("day"), { min: first, max: last, step: 1 });
    at("day").addEventListener("input", () => { this.pause(); this.move(Number(at("day").value)); });
    at("play").addEventListener("click", () => (this.playing ? this.pause() : this.play()));
  }

  play() {
    if (this.day >= this.last) this.move(this.first);
    this.playing = true;
    this.#label();
    let [before, passed] = [null, this.day];
    const step = (now) => {
      if (!this.playing) return;
      // A page that was hidden, or draws slowly, goes on from where it is.
      passed = this.day + Math.min((now - (before ?? now)) / 1000, 0.25) * Number(at("speed").value) + (passed - Math.floor(passed));
      before = now;
      if (Math.floor(passed) > this.day) this.move(Math.min(Math.floor(passed), this.last));
      if (this.day >= this.last) this.pause();
      else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  pause() {
    this.playing = false;
    this.#label();
  }

  // Show a day. While the page draws one, only the newest of those that are asked for is kept. Returns when the page
  // has drawn the newest one.
  move(day) {
    this.day = day;
    at("day").value = String(day);
    at("day").setAttribute("aria-valuetext", this.word(day));
    say(at("date"), this.word(day));
    this.wanted = day;
    this.drawing ??= this.#draw();
    return this.drawing;
  }

  async #draw() {
    while (this.wanted !== null) {
      const next = this.wanted;
      this.wanted = null;
      await this.show(next);
    }
    this.drawing = null;
    this.#label();
  }

  #label() {
    const name = this.playing ? "Pause" : this.day >= this.last ? "Play again" : "Play";
    at("play").dataset.playing = String(this.playing);
    say(at("play-name"), name);
  }
}
return { Player };
})();

const $demo_page_source_columns = (() => {
// Reads columns of numbers, as deploy/demo_page/columns.py writes them.

// Return the numbers of a packed column, as a Float64Array.
async function unpacked(text) {
  const [decimals, order, size, coded] = text.split(":");
  const bytes = Uint8Array.from(atob(coded), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const numbers = differences(new Uint8Array(await new Response(stream).arrayBuffer()), Number(size));
  for (let i = 0; i < Number(order); i += 1) addUp(numbers);
  return numbers.map(decimals < 0 ? (number) => number * 10 ** -decimals : (number) => number / 10 ** decimals);
}

// Return the columns of an object, unpacked; its other values stay as they are.
async function unpackedAll(columns) {
  const isPacked = (value) => typeof value === "string" && /^-?\d+:\d:\d:/.test(value);
  const each = Object.entries(columns).map(async ([name, value]) => [name, isPacked(value) ? await unpacked(value) : value]);
  return Object.fromEntries(await Promise.all(each));
}

// Not with shifts, because numbers may have more than 32 bits.
function differences(bytes, size) {
  const count = bytes.length / size;
  return Float64Array.from({ length: count }, (_, i) => {
    let number = 0;
    for (let place = size - 1; place >= 0; place -= 1) number = number * 256 + bytes[place * count + i];
    return number % 2 ? -(number + 1) / 2 : number / 2;
  });
}

function addUp(numbers) {
  for (let i = 1; i < numbers.length; i += 1) numbers[i] += numbers[i - 1];
}
return { unpacked, unpackedAll };
})();

const $demo_page_source_recording = (() => {
// What one deployment of the service released in the year, and the service's answers about it.
//
// Nothing is estimated here. Running counts are the released ones; a count of a range is the difference of two of them,
// as in the service, which the build checks. Every error, quantile and distribution is an answer of the service. No
// value of these streams is ever revised, so what was known on a day of the replay is the part until that day.

const { unpackedAll } = $demo_page_source_columns;

const UNITS = 65536; // released counts are whole numbers of 1/65536
const NONE = -32768; // a quantile without an estimate
const HOUR = 3600;

class Recording {
  // Args: start, of the year, in seconds since 1970; found, a deployment of released.js.
  static async of(start, { departures, delays }) {
    const { groups, parts, ...running } = departures;
    const names = Object.keys(groups);
    const [counts, errors, quantiles, cdfs, ...grouped] = await Promise.all(
      [running, parts, delays.quantiles, delays.cdfs, ...Object.values(groups)].map(unpackedAll));
    return new Recording(start, counts, errors, Object.fromEntries(names.map((name, i) => [name, grouped[i]])), { detail: delays.detail, quantiles, cdfs });
  }

  // Args: parts, the errors of the last days before the end of each day.
  constructor(start, running, parts, groups, delays) {
    Object.assign(this, { start, running, parts, groups, delays });
  }

  // Return the hours from the start of the year to the end of a day in New York. Args: day, 1 for 1 January.
  hoursUntil(day) {
    return this.groups["1d"].end[day - 1];
  }

  // Return the answers to the questions of the dashboard's modules, as of the end of a day, by their path.
  departuresUntil(day) {
    const hours = this.hoursUntil(day);
    const { detail, privacy, stderr, half } = this.running;
    const said = { seq: hours, released_until: rfc3339(this.#at(hours)) };
    const running = estimate(this.#count(hours), stderr[hours - 1], half[hours - 1]);
    const epochs = detail.epochs.map((one) => ({ ...one, bins_released: hours }));
    return {
      "": () => ({ ...detail, ...said, running, epochs, shape: false }), // no cap leaves any event out here
      privacy: () => ({ ...privacy, ...said }),
      count: ({ start, end }) => ({ ...this.#part(day, hours, (end - start) / HOUR), counted: detail.counted }),
      series: (query) => (query.kind === "running" ? this.#running(query, hours, said) : this.#bins(query, hours, said)),
    };
  }

  delaysUntil(day) {
    const { detail } = this.delays;
    const hours = this.hoursUntil(day);
    const said = { seq: hours, released_until: rfc3339(this.#at(hours)) };
    return {
      "": () => ({ ...detail, ...said, running: null, shape: false }),
      quantiles: (query) => this.#quantiles(query, said),
      cdf: (query) => this.#cdf(query, said),
    };
  }

  // Return the end of the last week that has ended by the end of a day.
  weekBefore(day) {
    return this.delays.quantiles.end.findLast((one) => one <= this.#at(this.hoursUntil(day)));
  }

  // Return the number of the week that ends at an instant.
  weekOf(end) {
    return this.delays.quantiles.end.indexOf(end);
  }

  #at(hours) {
    return this.start + hours * HOUR;
  }

  #count(hours) {
    return hours ? this.running.published[hours - 1] / UNITS : 0;
  }

  // Return the number of the last hours before the end of a day.
  #part(day, hours, length) {
    const [stderr, half] = ["stderr", "half"].map((name) => this.parts[`${name} ${length}`][day - 1]);
    return estimate(this.#count(hours) - this.#count(hours - length), stderr, half);
  }

  #running({ start, end, points }, hours, said) {
    const { template, stderr, half, inner80, inner50 } = this.running;
    const [first, last] = [Math.max((start - this.start) / HOUR, 0) + 1, Math.min((end - this.start) / HOUR, hours)];
    const every = Math.ceil((last - first + 1) / points);
    const shown = Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, i) => last - i * every).reverse();
    const note = every > 1 ? `Shown is one of every ${every} released counts. ${template.note}` : template.note;
    const of = (column) => shown.map((hour) => column[hour - 1]);
    return { ...template, ...said, note, start: shown.map(() => this.start), end: shown.map((hour) => this.#at(hour)), stderr: of(stderr),
      ...banded(shown.map((hour) => this.#count(hour)), of(half), [inner80, inner50].map(of)) };
  }

  #bins({ start, end, step, days = null }, hours, said) {
    const { template, ...group } = this.groups[days ? `${days}d` : `${step}h`];
    const places = within(group.start, group.end, (start - this.start) / HOUR, Math.min((end - this.start) / HOUR, hours));
    const of = (column) => places.map((i) => column[i]);
    const note = this.groups["1h"].template.note; // the others name parts of the year that fill no group
    return { ...template, ...said, note, start: of(group.start).map((hour) => this.#at(hour)), end: of(group.end).map((hour) => this.#at(hour)),
      stderr: of(group.stderr),
      ...banded(places.map((i) => this.#count(group.end[i]) - this.#count(group.start[i])), of(group.half), [group.inner80, group.inner50].map(of)) };
  }

  #quantiles({ start, end }, said) {
    const { template, q: asked, columns, ...weeks } = this.delays.quantiles;
    const places = within(weeks.start, weeks.end, start, end);
    const column = (which) => places.map((i) => columns[which * weeks.start.length + i]).map((minutes) => (minutes === NONE ? null : minutes));
    const quantiles = asked.map((q, i) => ({ q, value: column(3 * i), lower: column(3 * i + 1), upper: column(3 * i + 2) }));
    return { ...template, ...said, start: places.map((i) => weeks.start[i]), end: places.map((i) => weeks.end[i]), quantiles,
      note: `A point is a week from Monday to Sunday; the first and the last week of the year are shorter. Delays over 120 minutes count as 120. ${template.note.replace(/^The first.*?\. /, "")}` };
  }

  // Return the distribution until the end of a week.
  #cdf({ end }, said) {
    const { template, upto, ...columns } = this.delays.cdfs;
    const week = this.weekOf(end);
    const weeks = this.delays.quantiles.end.length;
    const of = (name) => upto.map((_, bucket) => columns[name][bucket * weeks + week]);
    const [value, below, above] = ["value", "below", "above"].map(of);
    const lower = value.map((one, i) => Math.max(one - below[i], 0)); // widths are rounded up, and no count is negative
    const upper = value.map((one, i) => one + above[i]);
    const consistent = of("consistent").map((one, i) => Math.min(Math.max(one, Math.ceil(lower[i])), Math.floor(upper[i]))); // as the service's
    return { ...template, ...said, start: rfc3339(this.start), end: rfc3339(this.delays.quantiles.end[week]), upto, value, stderr: of("stderr"), consistent, lower, upper };
  }
}

const rfc3339 = (at) => new Date(at * 1000).toISOString().replace(".000Z", "Z");

// Return the places of the groups that lie within a range.
function within(starts, ends, from, to) {
  const places = [];
  starts.forEach((start, i) => { if (start >= from && ends[i] <= to) places.push(i); });
  return places;
}

function banded(value, half, inner) {
  return { value, lower: value.map((one, i) => one - half[i]), upper: value.map((one, i) => one + half[i]), inner };
}

const estimate = (value, stderr, half) => ({ value, stderr, interval: [value - half, value + half], confidence: 0.95 });
return { Recording, rfc3339 };
})();

const $demo_page_source_replay_page = (() => {
// The state of a stream's page, as of a moment of the replay.

const { StreamPage } = $stream_app_api_dashboard_state;

const ZONE = "America/New_York";
const PARTS = ["30 days", "7 days"]; // ranges whose numbers are recorded

class ReplayPage extends StreamPage {
  constructor(stream, told) {
    super(`https://replay.invalid/streams/${stream}${window.location.search}`, told);
    Object.assign(this, { zone: ZONE, view: "unbiased", keys: [] });
  }

  // Return whether the charts show all of the year so far.
  get isWhole() {
    return this.stream === "delays" || (!this.closer && this.preset === "all");
  }

  // Of other parts of the year no number is recorded, so the number stays that of the year so far.
  get isPart() {
    return !this.closer && PARTS.includes(this.preset) && super.isPart;
  }

  // The axis of the whole year does not grow while the replay moves.
  domain() {
    const { start, days } = window.RELEASED;
    return this.isWhole ? { start, end: start + days * 86400 } : this.range();
  }

  // No answers in calendar units are recorded, so the page does not offer them.
  get calendarZone() {
    return null;
  }

  // Charts of the whole year have points of the same length at every moment of the replay.
  groups(most) {
    return this.isWhole ? { ...this.range(), days: 365 <= most ? 1 : 7, timezone: ZONE } : super.groups(most);
  }

  // Distributions are recorded from the start of the year only, so their charts do not zoom.
  zoom(start, end) {
    return this.stream === "delays" ? null : super.zoom(start, end);
  }
}
return { ReplayPage };
})();

const $demo_page_source_truth = (() => {
// The true numbers beside the released ones. The events are public; in a real deployment nobody sees these lines.

const { unpackedAll } = $demo_page_source_columns;

const HOUR = 3600;
const NAMES = ["true median", "true 90 %"];
const nothing = (values) => values.map(() => null);

class Truth {
  // Args: start, of the year, in seconds since 1970; counted, the recount of a unit of released.js.
  static async of(start, counted) {
    const { departures, not_counted: notCounted, quantiles, cdfs } = await unpackedAll(counted);
    const running = [0];
    departures.forEach((count) => running.push(running.at(-1) + count));
    return new Truth(start, running, notCounted, quantiles, cdfs);
  }

  constructor(start, running, notCounted, quantiles, cdfs) {
    Object.assign(this, { start, running, notCounted, quantiles, cdfs });
  }

  // Return the number of departures until an instant.
  until(at) {
    return this.running[Math.round((at - this.start) / HOUR)];
  }

  // Return after each hour how many of the released counts of one hour had the true number in their interval.
  held({ value, lower, upper, start, end }) {
    const found = [0];
    value.forEach((_, i) => {
      const count = this.until(end[i]) - this.until(start[i]);
      found.push(found[i] + (lower[i] <= count && count <= upper[i] ? 1 : 0));
    });
    return found;
  }

  // Each of the following returns lines for a picture of a panel.
  ofRunning({ end }) {
    return [line("truth", end.map((at) => this.until(at)))];
  }

  ofBins({ start, end }) {
    return [line("truth", end.map((at, i) => this.until(at) - this.until(start[i])))];
  }

  // Return how far the truth is from the released count, for the chart of the band.
  ofBand(picture, released) {
    return [line("truth differs by", picture.end.map((at, i) => this.until(at) - released[i]))];
  }

  ofQuantiles({ lines }, places) {
    return lines.map((_, which) => line(NAMES[which], places.map((week) => this.quantiles[2 * week + which])));
  }

  ofDistribution({ end }, week) {
    return [line("truth", Array.from(this.cdfs.slice(week * end.length, (week + 1) * end.length)))];
  }
}

const line = (name, value) => ({ name, value, lower: nothing(value), upper: nothing(value), quiet: true, dash: true });
return { Truth };
})();

const $demo_page_source_main = (() => {
// The demo page: a year of released rows, replayed with the dashboard's own charts, and the truth beside them.

const { at, bold, make, say } = $stream_app_api_dashboard_elements;
const { watchTheme } = $stream_app_api_dashboard_frame;
const { readHeadline, showHeadline } = $stream_app_api_dashboard_headline;
const { Bins } = $stream_app_api_dashboard_panels_bins;
const { Cdf } = $stream_app_api_dashboard_panels_cdf;
const { Quantiles } = $stream_app_api_dashboard_panels_quantiles;
const { Running } = $stream_app_api_dashboard_panels_running;
const { showPrivacy } = $stream_app_api_dashboard_privacy;
const { count } = $stream_app_api_dashboard_words;
const { get, moveTo } = $demo_page_source_api;
const { Player } = $demo_page_source_player;
const { Recording, rfc3339 } = $demo_page_source_recording;
const { ReplayPage } = $demo_page_source_replay_page;
const { Truth } = $demo_page_source_truth;

const FIRST_DAY = 14; // the first whole week from Monday to Sunday has ended by then
const UNITS = {
  departure: ["one departure", "Whether any one departure happened."],
  day: ["an aircraft’s day", "All departures of one aircraft on one UTC day, up to 6."],
  year: ["an aircraft’s year", "Everything one aircraft did in the year, up to 600 departures."],
};
const RELEASED = window.RELEASED;

const asked = new URL(window.location.href).searchParams;
const chosen = {
  epsilon: RELEASED?.epsilons.includes(asked.get("total")) ? asked.get("total") : "1",
  unit: asked.get("unit") in UNITS ? asked.get("unit") : "departure",
};
const opened = new Map(); // recordings and truths, by name
let truth, recording, held;
const panels = [];

const speak = (text) => { at("spoken").textContent = text; };
const counts = new ReplayPage("departures", { speak, changed: () => { showRanges(); showNumber(); draw(counts); } });
const delays = new ReplayPage("delays", { speak, changed: () => {} });

// ---- the chosen release ---------------------------------------------------------------------------

async function open(name, make) {
  if (!opened.has(name)) opened.set(name, make());
  return opened.get(name);
}

async function choose() {
  const { epsilon, unit } = chosen;
  const [{ start }, name] = [RELEASED, `${unit}-${epsilon}`];
  const [found, known] = await Promise.all([
    open(name, () => Recording.of(start, RELEASED.deployments[name])),
    open(unit, () => Truth.of(start, RELEASED.truth[unit])),
  ]);
  if (name !== `${chosen.unit}-${chosen.epsilon}`) return; // the reader has chosen another one meanwhile
  [recording, truth] = [found, known];
  held = truth.held(recording.departuresUntil(RELEASED.days).series({ kind: "bin", step: 1, start, end: start + RELEASED.days * 86400 }));
  await player.move(player.day);
  at("main").dataset.shown = name;
  showPrivacy(await get("/v1/streams/departures/privacy"), counts.times);
}

function showChoice() {
  const [name, about] = UNITS[chosen.unit];
  const places = { epsilon: RELEASED.epsilons.indexOf(chosen.epsilon), unit: RELEASED.units.indexOf(chosen.unit) };
  for (const [id, most] of [["epsilon", RELEASED.epsilons.length], ["unit", RELEASED.units.length]]) {
    Object.assign(at(`${id}-slider`), { min: 0, max: most - 1, step: 1, value: String(places[id]) });
  }
  at("epsilon-slider").setAttribute("aria-valuetext", `epsilon ${chosen.epsilon}`);
  at("unit-slider").setAttribute("aria-valuetext", name);
  say(at("epsilon"), `ε = ${chosen.epsilon} for all of this page, ${Number(chosen.epsilon) / 2} for this number`);
  say(at("epsilon-chosen"), chosen.epsilon);
  say(at("unit-chosen"), name);
  const times = Math.exp(Number(chosen.epsilon));
  say(at("epsilon-about"), `Odds change by at most × ${times < 10 ? times.toFixed(2) : times.toFixed(0)}.`);
  say(at("unit-about"), about);
  const url = new URL(window.location.href);
  const put = (key, value, usual) => (value === usual ? url.searchParams.delete(key) : url.searchParams.set(key, value));
  put("total", chosen.epsilon, "1");
  put("unit", chosen.unit, "departure");
  window.history.replaceState(null, "", url);
}

function listen() {
  const change = (key, values) => (event) => {
    chosen[key] = values[Number(event.target.value)];
    showChoice();
    choose();
  };
  at("epsilon-slider").addEventListener("input", change("epsilon", RELEASED.epsilons));
  at("unit-slider").addEventListener("input", change("unit", RELEASED.units));
  at("ranges").addEventListener("change", (event) => counts.choose({ preset: event.target.value, closer: null }));
}

// ---- a moment of the replay -----------------------------------------------------------------------

async function show(day) {
  if (!recording) return;
  moveTo(recording, day);
  await counts.take(await get("/v1/streams/departures"));
  await delays.take(await get("/v1/streams/delays"));
  delays.closer = [RELEASED.start, recording.weekBefore(day)];
  await showNumber();
  if (!panels.length) addPanels();
  await Promise.all([draw(counts), draw(delays)]);
  at("main").dataset.day = String(day);
}

async function draw(page) {
  await Promise.all(panels.filter((one) => one.page === page).map(async (panel) => {
    panel.element.setAttribute("aria-busy", "true");
    await panel.load();
    panel.element.setAttribute("aria-busy", "false");
  }));
}

// Show the number of the chosen range, and the true one below it.
async function showNumber() {
  const found = await readHeadline(counts);
  showHeadline(counts, found, counts.detail.released_until, counts.detail.seq);
  const { start, end } = counts.isPart ? counts.range() : counts.whole();
  const exact = truth.until(end) - truth.until(start);
  const [lower, upper] = found.count.interval;
  const inside = lower <= exact && exact <= upper;
  at("truth").dataset.inside = String(inside);
  at("truth").replaceChildren("True number: ", bold(count(exact)), inside ? ", inside the interval." : ", outside this interval, as about 1 in 20 are.");
  const { warning, meaning } = counts.detail;
  say(at("counted"), warning ? `${meaning} No aircraft has more departures than that, so nothing is left out here. ${count(truth.notCounted)} departures of the year name no aircraft.` : "");
}

function showRanges() {
  for (const input of at("ranges").querySelectorAll("input")) input.checked = !counts.closer && input.value === counts.preset;
  at("closer").hidden = !counts.closer;
}

// ---- the page -------------------------------------------------------------------------------------

// Draw the truth into a chart of a panel.
function beside(band, lines, name = "", seen = () => {}) {
  const draw = band.show.bind(band);
  band.show = (picture, span, domain) => {
    const named = picture.lines.map((line) => ({ ...line, name: line.name || name }));
    const known = lines(picture);
    draw({ ...picture, lines: [...named, ...known] }, span, domain);
    seen(picture.lines, known);
  };
}

// Return what says below a panel how many of its chart's intervals hold the truth. Args: words, what else to say there.
function coverage(panel, words = () => "") {
  const said = make("p", { className: "note coverage" });
  panel.urgent.before(said);
  return (lines, known) => {
    const points = lines.flatMap(({ lower, upper }, which) => lower.map((from, i) => [from, known[which].value[i], upper[i]]));
    const inside = points.filter(([from, exact, to]) => from <= exact && exact <= to).length;
    say(said, `The band holds the truth at ${count(inside)} of the ${count(points.length)} points drawn here (${(100 * inside / Math.max(points.length, 1)).toFixed(1)} %). ${words()}`);
  };
}

// The service's intervals of single hours, over all hours so far.
function ofHours() {
  const { seq } = counts.detail;
  return `The intervals of single hours have held it in ${(100 * held[seq] / seq).toFixed(1)} % of ${count(seq)} hours so far.`;
}

function addPanels() {
  const [bins, running, quantiles, cdf] = [new Bins(counts), new Running(counts), new Quantiles(delays), new Cdf(delays)];
  beside(bins.band, (picture) => truth.ofBins(picture), "released", coverage(bins, ofHours));
  beside(running.band, (picture) => truth.ofRunning(picture), "released",
    coverage(running, () => "Neighbouring running counts share most of their noise, so the truth may stay outside for days."));
  beside(running.strip, (picture) => truth.ofBand(picture, running.band.picture.lines[0].value));
  beside(quantiles.band, (picture) => truth.ofQuantiles(picture, picture.start.map((_, i) => i)), "", coverage(quantiles));
  beside(cdf.band, (picture) => truth.ofDistribution(picture, recording.weekOf(delays.range().end)), "released", coverage(cdf));
  say(cdf.element.querySelector(".about"), `${delays.noun} with a delay of up to each point, since the start of the year. The band holds the whole true curve at once with 95 % probability.`);
  at("panels").append(bins.element, running.element);
  at("distributions").append(quantiles.element, cdf.element);
  panels.push(bins, running, quantiles, cdf);
}

const player = RELEASED && new Player({
  first: FIRST_DAY,
  last: RELEASED.days,
  word: (day) => new Date((RELEASED.start + (day - 0.5) * 86400) * 1000).toLocaleDateString("en-GB", { timeZone: RELEASED.zone, day: "numeric", month: "short", year: "numeric" }).replace("Sept", "Sep"),
  show,
});

async function start() {
  if (!RELEASED) throw new Error("the file released.js is missing. It belongs into the folder of this page");
  if (typeof DecompressionStream !== "function") throw new Error("this browser cannot read compressed data. Chrome and Edge 80, Firefox 113 and Safari 16.4 can, and later ones");
  say(at("stream-name"), "Departures so far");
  say(at("stream-about"), "From New York’s three airports, by their scheduled time, counted every hour.");
  showChoice();
  showRanges();
  listen();
  at("to-privacy").addEventListener("click", () => { at("privacy").open = true; });
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  player.day = still ? RELEASED.days : FIRST_DAY;
  await choose();
  at("main").dataset.ready = "true";
  at("loading").hidden = true;
  watchTheme(() => panels.forEach((panel) => panel.restyle()));
  if (!still && !asked.has("still")) player.play();
}

start().catch((error) => {
  at("main").dataset.ready = "failed";
  say(at("loading"), `The released rows cannot be shown: ${error.message}.`);
});
return {  };
})();
})();
