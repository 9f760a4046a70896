import{u as e}from"./chunk-5RWK2TXD.js";var a=({prefix:r="pf-random-id-",children:d})=>{let t=e(r);return d(t)};a.displayName="GenerateId";export{a};
